"""German conjugation: finite forms, participle and imperative from a verb's principal parts.

Weak verbs need only their infinitive. Separable prefixes are set off by a bar: "an|rufen/ruft/rief/gerufen".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from syntaxformer.demo.generated.features import Number, Person

__all__ = ["AUXILIARIES", "HABEN", "SEIN", "WERDEN", "GermanVerb", "finite"]

_SLOTS: tuple[tuple[Person, Number], ...] = ((1, "sg"), (2, "sg"), (3, "sg"), (1, "pl"), (3, "pl"))
_INSEPARABLE = re.compile("be|emp|ent|er|ge|ver|zer|über(?=queren)|unter(?=schreiben)")

_IRREGULAR_PRESENT: dict[str, tuple[str, str, str, str, str]] = {
    "sein": ("bin", "bist", "ist", "sind", "sind"),
    "haben": ("habe", "hast", "hat", "haben", "haben"),
    "werden": ("werde", "wirst", "wird", "werden", "werden"),
    "können": ("kann", "kannst", "kann", "können", "können"),
    "müssen": ("muss", "musst", "muss", "müssen", "müssen"),
    "wollen": ("will", "willst", "will", "wollen", "wollen"),
    "dürfen": ("darf", "darfst", "darf", "dürfen", "dürfen"),
    "mögen": ("mag", "magst", "mag", "mögen", "mögen"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wissen"),
    "sollen": ("sollte", "solltest", "sollte", "sollten", "sollten"),  # "should", not "is to"
}


@dataclass(frozen=True, slots=True)
class GermanVerb:
    """A verb's principal parts, all without its separable prefix.

    Args:
        infinitive: "rufen".
        third_person: "ruft".
        past: First person singular of the Präteritum, "rief".
        participle: "gerufen".
        prefix: "an", or an empty string.
        takes_sein: The perfect is formed with sein.
        reflexive: The verb needs "sich".
    """

    infinitive: str
    third_person: str
    past: str
    participle: str
    prefix: str = ""
    takes_sein: bool = False
    reflexive: bool = False

    @classmethod
    def parse(cls, parts: str) -> GermanVerb:
        """Read "an|rufen/ruft/rief/gerufen"; leading "sich " and trailing "+sein" set the flags."""
        reflexive = parts.startswith("sich ")
        takes_sein = parts.endswith("+sein")
        prefix, _, rest = parts.removeprefix("sich ").removesuffix("+sein").rpartition("|")
        forms = rest.split("/")
        principal = tuple(forms) if len(forms) == 4 else _weak(forms[0])
        return cls(*principal, prefix=prefix, takes_sein=takes_sein, reflexive=reflexive)

    @property
    def lemma(self) -> str:
        """Infinitive with the prefix."""
        return self.prefix + self.infinitive

    @property
    def stem(self) -> str:
        """Infinitive without -en or -n."""
        return re.sub("(?<=el|er)n$|en$|n$", "", self.infinitive)

    @property
    def imperative(self) -> str:
        """Second person singular: "nimm", "ruf", "warte"."""
        if self.infinitive == "sein":
            return "sei"
        changed = self.third_person.removesuffix("t")
        if changed != self.stem and "i" in changed and "ä" not in changed:
            return changed
        strong = not self.past.endswith("te")
        return self.stem if strong and not self.stem.endswith(("t", "d")) else _first_person(self)


def finite(verb: GermanVerb, person: Person, number: Number, *, past: bool) -> str:
    """The finite form without the separable prefix."""
    slot = _SLOTS.index((person, number))
    return _past_forms(verb)[slot] if past else _present_forms(verb)[slot]


def _present_forms(verb: GermanVerb) -> tuple[str, ...]:
    if verb.infinitive in _IRREGULAR_PRESENT:
        return _IRREGULAR_PRESENT[verb.infinitive]
    plural = verb.infinitive
    return _first_person(verb), _second_person(verb), verb.third_person, plural, plural


def _past_forms(verb: GermanVerb) -> tuple[str, ...]:
    past = verb.past
    if past.endswith("e"):
        return past, past + "st", past, past + "n", past + "n"
    second = past + ("est" if past.endswith(("s", "ß", "t", "d")) else "st")
    return past, second, past, past + "en", past + "en"


def _first_person(verb: GermanVerb) -> str:
    return verb.stem[:-2] + "le" if verb.infinitive.endswith("eln") else verb.stem + "e"


def _second_person(verb: GermanVerb) -> str:
    if verb.stem.endswith("t") and not verb.third_person.endswith("et"):  # hält, hältst
        return verb.third_person + "st"
    stem = verb.third_person.removesuffix("t")
    return verb.third_person if stem.endswith(("s", "ß", "z", "x")) else stem + "st"


def _weak(infinitive: str) -> tuple[str, str, str, str]:
    stem = re.sub("(?<=el|er)n$|en$", "", infinitive)
    link = "e" if re.search("[td]$|[^aeiouäöülrhmn][nm]$", stem) else ""
    third = stem + link + "t"
    augment = "" if _INSEPARABLE.match(infinitive) or infinitive.endswith("ieren") else "ge"
    return infinitive, third, stem + link + "te", augment + third


SEIN = GermanVerb("sein", "ist", "war", "gewesen", takes_sein=True)
HABEN = GermanVerb("haben", "hat", "hatte", "gehabt")
WERDEN = GermanVerb("werden", "wird", "wurde", "worden", takes_sein=True)
AUXILIARIES: dict[str, GermanVerb] = {
    "können": GermanVerb("können", "kann", "konnte", "gekonnt"),
    "müssen": GermanVerb("müssen", "muss", "musste", "gemusst"),
    "wollen": GermanVerb("wollen", "will", "wollte", "gewollt"),
    "dürfen": GermanVerb("dürfen", "darf", "durfte", "gedurft"),
    "sollen": GermanVerb("sollen", "soll", "sollte", "gesollt"),
}
