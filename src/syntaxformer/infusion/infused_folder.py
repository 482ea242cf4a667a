"""Write and read folders of infused models, and register them with transformers' Auto classes.

Their `config.json` names our own model type. Without this package, loading such a folder therefore fails with
a message; with it, the model is loaded with its syntax. In memory the config is the host's.
"""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import auto_factory, modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from syntaxformer.base.errors import CheckpointError, ConfigError
from syntaxformer.base.files import (
    INFUSION_FILE,
    check_settings,
    check_weights,
    fetched,
    folder_errors,
    read_json,
)
from syntaxformer.infusion.config import InfusionConfig
from syntaxformer.infusion.families import FAMILIES, Family
from syntaxformer.infusion.model_card import end_of, write_card
from syntaxformer.infusion.plug_in import host_class, infuse
from syntaxformer.syntax import RELATIONS_VERSION

_log = logging.getLogger(__name__)
_HOST, _PREFIX = "host_model_type", "infusion."
_VARIANT = re.compile(r"model(?:\.(\w+))?(?:-\d+-of-\d+)?\.safetensors")
_OF_WEIGHTS = ("dtype", "attn_implementation", "quantization_config")
_OF_HUB = ("revision", "cache_dir", "token", "local_files_only", "force_download")


class InfusedConfig(PreTrainedConfig):
    """`config.json` of an infused model: that of its host, under our own model type."""

    model_type = "syntaxformer_infused"
    host: Any = None  # the host's config, which the loaded model gets

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """Read the host's config; arguments as in transformers.

        Raises:
            CheckpointError: transformers does not know the host's model type.
        """
        of_host = {**config_dict, "model_type": config_dict.get(_HOST)}
        if of_host.pop(_HOST, None) not in CONFIG_MAPPING:
            raise CheckpointError(
                f"{_HOST}: expected a kind of model that transformers knows, got {of_host['model_type']!r}. "
                "The folder was altered or written by another version."
            )
        host_config = CONFIG_MAPPING[of_host["model_type"]].from_dict(of_host, **kwargs)
        host, *unused = host_config if isinstance(host_config, tuple) else (host_config,)
        config = cls()
        vars(config).update({**vars(host), "host": host, "model_type": cls.model_type})
        return (config, *unused) if unused else config

    def __getattr__(self, name: str) -> Any:
        """Look an attribute up in the host's config."""
        if name.startswith("__") or "host" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["host"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute here and in the host's config, which the loaded model gets."""
        super().__setattr__(name, value)
        if name != "host" and (host := self.__dict__.get("host")) is not None:
            setattr(host, name, value)

    def to_dict(self) -> dict[str, Any]:
        """The host's content, under our own model type."""
        host = self.__dict__.get("host")
        if host is None:
            return super().to_dict()
        return {**host.to_dict(), "model_type": self.model_type, _HOST: host.model_type}


def save(
    model: PreTrainedModel,
    by_host: Callable[..., None],
    save_directory: str | Path,
    is_main_process: bool = True,
    *args: Any,
    **kwargs: Any,
) -> None:
    """Write a model's folder with its infusion, and upload it if asked to."""
    folder = Path(save_directory)
    uploads, repository = kwargs.pop("push_to_hub", False), kwargs.pop("repo_id", folder.name)
    names = ("commit_message", "commit_description", "private", "create_pr", "revision", "token")
    upload = {name: kwargs.pop(name) for name in names if name in kwargs}
    # Under the host's names in memory: others are found by its kind, which is ours in the folder.
    positional = (is_main_process, *args) if args else ()
    kwargs |= {} if args else {"is_main_process": is_main_process}
    by_host(save_directory, *positional, **{"save_original_format": False, **kwargs})
    if not is_main_process:
        return
    if not folder.is_file():
        host = host_class(type(model))
        # The class of transformers, even if a class of the user's derives from it.
        known = next(
            base
            for base in host.__mro__
            if base.__module__.startswith("transformers.") and "by" not in base.__dict__
        )
        # Whether it was made with a pooler, where it can be asked and does otherwise by itself.
        option = inspect.signature(known.__init__).parameters.get("add_pooling_layer")
        has_pooler = getattr(model, "pooler", None) is not None
        by_itself = option is None or option.default == has_pooler
        content = {
            "architecture": known.__name__,
            **({} if host.__module__.startswith("transformers.") else {"class": host.__name__}),
            "options": {} if by_itself else {"add_pooling_layer": has_pooler},
            "checkpoint": end_of(model.name_or_path),
            "relations": RELATIONS_VERSION,
            "infusion": model.infusion.config.model_dump(mode="json"),
        }
        if model.infusion.family != FAMILIES.get(model.config.model_type):
            content["family"] = asdict(model.infusion.family)
        (folder / INFUSION_FILE).write_text(json.dumps(content, indent=1), "utf-8")
        path = folder / "config.json"
        if path.is_file():  # PEFT's integration writes only an adapter
            written = json.loads(path.read_text("utf-8"))
            written |= {"model_type": InfusedConfig.model_type, _HOST: model.config.model_type}
            path.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n", "utf-8")
            write_card(folder)
    if uploads:
        model.push_to_hub(repository, **upload)


def load(
    folder: str | Path, model_class: type[PreTrainedModel] | None = None, **options: Any
) -> PreTrainedModel:
    """Load what an infused model's `save_pretrained` wrote.

    Args:
        folder: The folder, or its name on the Hub.
        model_class: The class to load; None for the class of transformers that was saved.
        options: As `from_pretrained` of transformers takes them: `dtype`, `device_map`,
            `attn_implementation` (of what is not infused), `revision`, values of its config and others. New
            parameters stay fp32.

    Raises:
        CheckpointError: It is not such a folder, its weights do not fit its config, or it was saved from a
            class of your own, which `model_class` must be then.
    """
    return from_folder(folder, model_class=model_class, **options)


def from_folder(
    folder: str | Path,
    *args: Any,
    auto: Any = None,
    config: Any = None,
    model_class: Any = None,
    subfolder: str = "",
    **options: Any,
) -> Any:
    """As `load`; `auto` is the Auto class that was called."""
    folder = fetched(folder, **{key: options.pop(key) for key in _OF_HUB if key in options}) / subfolder
    stored, infusion, family = _stored(folder)
    if model_class is None and (name := stored.get("class")) is not None:
        problem = f"{folder}: expected its class {name}, which is not of transformers"
        if auto is None:
            raise CheckpointError(f"{problem}, got none. Give it to syntaxformer.load as model_class.")
        _log.warning(
            "%s, got %s. Load it with syntaxformer.load, and give it model_class.", problem, auto.__name__
        )
    variants = {match[1] for path in folder.glob("model*") if (match := _VARIANT.fullmatch(path.name))}
    if len(variants) == 1:  # of `save_pretrained(variant=…)`; None where the weights have their plain name
        options.setdefault("variant", variants.pop())
    check_settings(folder)
    with folder_errors(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False) if config is None else config
        host_config = deepcopy(getattr(config, "host", config))
        for name in [key for key in options if hasattr(host_config, key) and key not in _OF_WEIGHTS]:
            setattr(host_config, name, options.pop(name))
        if model_class is not None:
            host = model_class
        elif auto is not None:
            host = auto_factory._get_model_class(host_config, auto._model_mapping)
        else:
            host = _architecture(folder, stored.get("architecture"), host_config)
        pooling = {}
        if auto is None and host.__name__ == stored.get("architecture") and stored.get("options"):
            pooling = {"add_pooling_layer": stored["options"].get("add_pooling_layer") is True}
        options = {"use_safetensors": True, **pooling, **options}
        wants_report = options.pop("output_loading_info", False)
        infused = _infused(host, infusion, family)
        if not options.get("ignore_mismatched_sizes"):
            check_weights(folder, lambda: infused(deepcopy(host_config), *args, **pooling))
        model, report = infused.from_pretrained(
            folder, *args, config=host_config, output_loading_info=True, **options
        )
    # Nothing may be missing, since a random parameter would go unnoticed.
    odd = sorted({*report["missing_keys"], *report["unexpected_keys"]})
    if ours := [key.removeprefix(_PREFIX) for key in odd if key.startswith(_PREFIX)]:
        raise CheckpointError(
            f"{folder}: expected the parameters that {INFUSION_FILE} describes, got others: "
            f"{', '.join(ours[:3])}. The folder was altered."
        )
    if odd and auto is None and host.__name__ in (stored.get("architecture"), stored.get("class")):
        raise CheckpointError(
            f"{folder}: expected exactly the parameters of {host.__name__}, got differences in "
            f"{', '.join(odd[:3])}. The folder was altered."
        )
    return (model, report) if wants_report else model


def widen_head(model: Any, width: int) -> None:
    """Give a model's head a hidden layer of this width; both of its maps start anew.

    The model's config keeps the width as `head_width`. The head must be a map of the states, a function and a
    map to the labels.

    Source: Bai et al. (2021), appendix A.1 and A.2.

    Raises:
        ConfigError: The head is not a map of the states, a function and a map to the labels.
    """
    modules = [  # numbers in a name are those of layers
        (name, module)
        for name, module in model.named_modules()
        if module._parameters and not re.search(r"\.\d", name)
    ]
    ends = [index for index, (_, module) in enumerate(modules) if isinstance(module, nn.Linear)][-2:]
    maps: Any = modules[ends[0] : ends[-1] + 1] if len(ends) == 2 else []
    if len(maps) != 2 or {*maps[0][1].weight.shape} != {maps[1][1].in_features}:
        expected = "head_width: expected a model with a hidden layer before its labels, as BERT"
        raise ConfigError(f"{expected}, got {type(model).__name__}. Leave it out.")
    (_, hidden), (_, output) = maps
    sizes = (hidden.in_features, width), (width, output.out_features)
    for (name, old), columns_and_rows in zip(maps, sizes, strict=True):
        linear = nn.Linear(*columns_and_rows, bias=old.bias is not None)
        model._init_weights(linear)
        model.set_submodule(name, linear)
    model.config.head_width = width


def _infused(host: type, infusion: InfusionConfig, family: Family | None) -> Any:
    """A class that infuses itself when it is created, so that transformers also loads the new parameters."""

    class Infused(host):
        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            self.__class__ = host
            host.__init__(self, config, *args, **kwargs)
            if (width := getattr(config, "head_width", None)) is not None and self.base_model is not self:
                widen_head(self, width)
            if getattr(self, "infusion", None) is None:
                infuse(self, infusion, family)
            elif self.infusion.config != infusion:
                expected = f"expected what {host.__name__} infuses itself with"
                raise CheckpointError(f"{INFUSION_FILE}: {expected}, got another one.")

    Infused.__name__ = Infused.__qualname__ = host.__name__
    return Infused


def _stored(folder: Path) -> tuple[dict[str, Any], InfusionConfig, Family | None]:
    """Read and check `infusion.json`."""
    path = folder / INFUSION_FILE
    if (folder / "config.json").is_file() and not path.exists():
        raise CheckpointError(
            f"{folder}: expected an infused model, got a plain one: no {INFUSION_FILE}. An Auto class of "
            "transformers loads it; `syntaxformer.pipeline` uses a folder that `train` or `finetune` wrote."
        )
    stored = read_json(path)
    if (version := stored.get("relations", 1)) != RELATIONS_VERSION:
        raise CheckpointError(
            f"{path}: expected relations of definition {RELATIONS_VERSION}, which this version computes, got "
            f"{version!r}. Load the folder with the version of syntaxformer that wrote it."
        )
    try:
        family = Family.from_dict(stored["family"], str(path)) if "family" in stored else None
        return stored, InfusionConfig.from_json(stored.get("infusion"), str(path)), family
    except ConfigError as error:
        raise CheckpointError(str(error)) from error


def _architecture(folder: Path, name: Any, config: Any) -> type[PreTrainedModel]:
    """The class that was infused, looked up only in its host's module: other names could import any code."""
    module = import_module(type(config).__module__.replace("configuration_", "modeling_"))
    architecture = getattr(module, str(name), None)
    if not (isinstance(architecture, type) and issubclass(architecture, PreTrainedModel)):
        raise CheckpointError(
            f"{folder / INFUSION_FILE}: expected the name of a transformers model as architecture, got "
            f"{name!r}. The folder was altered or written by another version."
        )
    return architecture


class InfusedLoader:
    """Stands in for the host's class when an Auto class of transformers asks it to load."""

    config_class = InfusedConfig
    auto: Any

    @classmethod
    def from_pretrained(cls, folder: Any, *args: Any, **options: Any) -> Any:
        """Load as `from_folder` does."""
        return from_folder(folder, *args, auto=cls.auto, **options)

    @classmethod
    def _from_config(cls, config: Any, **_: Any) -> Any:
        raise ConfigError(
            "config: expected the config of a plain model, got that of an infused one, which does not "
            "say what is infused. Use from_pretrained, or infuse a plain model."
        )


AutoConfig.register(InfusedConfig.model_type, InfusedConfig, exist_ok=True)
for _auto in (getattr(modeling_auto, name) for name in modeling_auto.__all__):
    if getattr(_auto, "_model_mapping", None) is not None:
        _auto.register(InfusedConfig, type("InfusedLoader", (InfusedLoader,), {"auto": _auto}), exist_ok=True)
