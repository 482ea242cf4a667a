"""Serves trained models over HTTP: translation and classification, with requests batched together."""

from syntaxformer.serve.app import create_app
from syntaxformer.serve.config import ServiceConfig
from syntaxformer.serve.engines import Engine, load_engine
from syntaxformer.serve.server import add_explorer, name_models, run

__all__ = ["Engine", "ServiceConfig", "add_explorer", "create_app", "load_engine", "name_models", "run"]
