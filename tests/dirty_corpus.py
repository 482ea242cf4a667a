"""Makes a dirty parallel corpus and says which pairs are wrong, so that tests know what must be found.

python tests/dirty_corpus.py FOLDER
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

NAMES = [
    "Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hans", "Ida", "Jonas", "Karla", "Leo", "Mia",
    "Noah", "Olga", "Paul", "Rosa", "Simon", "Tina", "Uwe",
]  # fmt: skip
THINGS = [
    ("the old book", "das alte Buch"), ("a red apple", "einen roten Apfel"), ("the small dog", "den kleinen Hund"),
    ("my new bicycle", "mein neues Fahrrad"), ("the green door", "die grüne Tür"), ("our garden", "unseren Garten"),
    ("the long letter", "den langen Brief"), ("a warm coat", "einen warmen Mantel"), ("the kitchen", "die Küche"),
    ("his blue car", "sein blaues Auto"),
]  # fmt: skip
VERBS = [
    ("saw {} yesterday in the city.", "sah {} gestern in der Stadt."),
    ("would like to buy {} for the children.", "möchte {} für die Kinder kaufen."),
    ("has not found {} this morning.", "hat {} heute Morgen nicht gefunden."),
    ("is looking at {} because it is beautiful.", "betrachtet {}, weil es schön ist."),
    ("shows {} to the neighbours every week.", "zeigt {} den Nachbarn jede Woche."),
]
FRENCH = [
    "Le chat dort sur le canapé.", "Je ne sais pas quoi faire demain.", "Nous avons mangé du pain ce matin.",
    "Les enfants jouent dans le jardin.", "Elle a acheté une nouvelle voiture rouge.",
    "Merci beaucoup pour votre aide.", "Où est la gare, s'il vous plaît ?", "Il fait très froid cet hiver.",
    "Mon frère habite à la campagne.", "Vous devez fermer la porte en sortant.",
    "Ma grand-mère prépare une soupe aux légumes.", "Le train est arrivé avec une heure de retard.",
    "Je voudrais un café et deux croissants.", "Ils sont partis en vacances la semaine dernière.",
    "Cette maison est trop grande pour nous.", "Tu as oublié tes clés sur la table.",
    "Le professeur explique la leçon aux élèves.", "On ne peut pas tout avoir dans la vie.",
    "La mer était calme et le ciel était bleu.", "J'ai perdu mon parapluie dans le métro.",
    "Quelle heure est-il maintenant ?", "Le médecin m'a dit de rester au lit.",
    "Nous cherchons un appartement près du centre.", "Elle chante souvent sous la douche.",
    "Les oiseaux chantent tôt le matin.", "Il n'y a plus de lait dans le frigo.",
    "Je travaille dans cette entreprise depuis dix ans.", "Le vin rouge est meilleur que le blanc.",
    "Mes parents se sont rencontrés à Paris.", "Pourquoi est-ce que tu ne réponds pas ?",
    "Le facteur passe toujours avant midi.", "Il faut que je finisse ce travail ce soir.",
    "La boulangerie est fermée le lundi.", "Nous avons regardé un film très drôle.",
    "Les feuilles tombent des arbres en automne.", "Elle porte une robe verte et un chapeau.",
    "Je n'ai jamais vu une chose pareille.", "Le chien aboie quand quelqu'un sonne.",
    "Vous parlez français mieux que moi.", "Il a cassé la fenêtre avec son ballon.",
    "Ce livre raconte l'histoire d'un pêcheur.", "On se retrouve devant le cinéma à huit heures.",
    "Ma sœur apprend à jouer du piano.", "Les voisins font trop de bruit la nuit.",
    "Je t'ai envoyé une lettre hier.", "Le marché a lieu chaque samedi sur la place.",
    "Il est difficile de trouver une solution.", "Nous sommes restés jusqu'à la fin du concert.",
    "Elle a peur des araignées et des souris.", "Le soleil se couche derrière la montagne.",
]  # fmt: skip
"""Fifty lines, which stand once on the source's side and once on the target's: a hundred."""


def clean_pairs() -> list[tuple[str, str]]:
    """A thousand pairs, all different."""
    return [
        (f"{name} {verb.format(thing)}", f"{name} {german.format(ding)}")
        for name in NAMES
        for thing, ding in THINGS
        for verb, german in VERBS
    ]


def write_dirty(folder: Path) -> dict[str, set[int]]:
    """Write the files `Export (final).ENG/.DEU` and `test.ENG/.DEU`; CRLF, and a byte order mark on one side.

    Returns:
        Fault → numbers of the lines, counted from 1, that were made so. All other lines are clean.
    """
    chance = random.Random(7)
    pairs = clean_pairs()
    chance.shuffle(pairs)
    test, train = pairs[:100], [(kind, pair) for kind, pair in zip(["clean"] * 900, pairs[100:], strict=True)]
    train += [("overlap", pair) for pair in test]
    train += [("duplicate", pair) for pair in pairs[100:140]]  # these stand at the end, after the first ones
    faulty = [("french", (line, german)) for line, (_, german) in zip(FRENCH, pairs[200:], strict=False)]
    faulty += [("french", (english, line)) for line, (english, _) in zip(FRENCH, pairs[300:], strict=False)]
    faulty += [("copy", (f"{english} Indeed.", f"{english} Indeed.")) for english, _ in pairs[400:430]]
    faulty += [("empty", (english, " ")) for english, _ in pairs[430:440]]
    faulty += [("empty", ("", german)) for _, german in pairs[440:450]]
    faulty += [("ratio", (f"Well, {english} " * 6, f"Nun, {german}")) for english, german in pairs[450:460]]
    faulty += [("script", (f"So {one}", "Анна вчера видела старую книгу.")) for one, _ in pairs[460:470]]
    faulty += [("tab", (f"And {one}", f"Und\t{other}")) for one, other in pairs[470:475]]
    train = train[:500] + faulty + train[500:]
    found: dict[str, set[int]] = {}
    for number, (kind, _) in enumerate(train, 1):
        found.setdefault(kind, set()).add(number)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("Export (final)", [pair for _, pair in train]), ("test", test)):
        for side, ending in enumerate(("ENG", "DEU")):
            text = "".join(f"{row[side]}\r\n" for row in rows)
            (folder / f"{name}.{ending}").write_bytes(b"\xef\xbb\xbf" * side + text.encode())
    return found


if __name__ == "__main__":
    for kind, lines in write_dirty(Path(sys.argv[1])).items():
        print(kind, len(lines))
