"""The words of the quickstart's world: a lexicon, a tiny German grammar, and sentence patterns.

Only German nouns, articles, adjective endings and pronouns depend on the sense of an ambiguous English noun; patterns,
adjectives and places go with every noun alike, so the English sentence says nothing about it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Noun:
    """One sense of an English noun: how German says it, how it is drawn, and the scenes that tell it, if any."""

    english: str
    german: str
    gender: str  # m, f or n
    drawing: str  # a key of drawing.THINGS
    cues: tuple[str, ...] = ()  # keys of CUES; the senses of one English noun share none


AMBIGUOUS: list[tuple[Noun, Noun]] = [
    (
        Noun("bat", "Fledermaus", "f", "bat_animal", ("cave", "forest")),
        Noun("bat", "Schläger", "m", "bat_club", ("stadium", "beach")),
    ),
    (
        Noun("crane", "Kranich", "m", "crane_bird", ("lake", "forest")),
        Noun("crane", "Kran", "m", "crane_machine", ("building_site", "harbour")),
    ),
    (
        Noun("seal", "Robbe", "f", "seal_animal", ("ice", "beach")),
        Noun("seal", "Siegel", "n", "seal_stamp", ("office", "castle")),
    ),
    (
        Noun("bow", "Bogen", "m", "bow_weapon", ("castle", "forest")),
        Noun("bow", "Schleife", "f", "bow_ribbon", ("party", "stage")),
    ),
    (
        Noun("pipe", "Pfeife", "f", "pipe_smoking", ("fireplace", "living_room")),
        Noun("pipe", "Rohr", "n", "pipe_tube", ("building_site", "workshop")),
    ),
    (
        Noun("palm", "Palme", "f", "palm_tree", ("beach", "desert")),
        Noun("palm", "Handfläche", "f", "palm_hand", ("hospital", "school")),
    ),
    (
        Noun("spade", "Spaten", "m", "spade_tool", ("beach", "building_site")),
        Noun("spade", "Pik", "n", "spade_card", ("party", "living_room")),
    ),
    (
        Noun("key", "Schlüssel", "m", "key_lock", ("castle", "workshop")),
        Noun("key", "Taste", "f", "key_button", ("office", "school")),
    ),
    (
        Noun("plane", "Flugzeug", "n", "plane_air", ("airport", "storm")),
        Noun("plane", "Hobel", "m", "plane_tool", ("workshop", "building_site")),
    ),
    (
        Noun("fan", "Fächer", "m", "fan_folding", ("stage", "party")),
        Noun("fan", "Ventilator", "m", "fan_electric", ("office", "hospital")),
    ),
    (
        Noun("nut", "Nuss", "f", "nut_food", ("forest", "fireplace")),
        Noun("nut", "Mutter", "f", "nut_metal", ("workshop", "airport")),
    ),
    (
        Noun("bolt", "Blitz", "m", "bolt_lightning", ("storm", "lake")),
        Noun("bolt", "Bolzen", "m", "bolt_screw", ("harbour", "workshop")),
    ),
    (
        Noun("tank", "Panzer", "m", "tank_army", ("desert", "storm")),
        Noun("tank", "Aquarium", "n", "tank_fish", ("living_room", "hospital")),
    ),
    (
        Noun("bass", "Barsch", "m", "bass_fish", ("lake", "harbour")),
        Noun("bass", "Kontrabass", "m", "bass_music", ("stage", "party")),
    ),
]

UNAMBIGUOUS: list[Noun] = [
    Noun("cat", "Katze", "f", "cat"),
    Noun("rabbit", "Hase", "m", "rabbit"),
    Noun("duck", "Ente", "f", "duck"),
    Noun("snail", "Schnecke", "f", "snail"),
    Noun("turtle", "Schildkröte", "f", "turtle"),
    Noun("butterfly", "Schmetterling", "m", "butterfly"),
    Noun("cup", "Tasse", "f", "cup"),
    Noun("chair", "Stuhl", "m", "chair"),
    Noun("lamp", "Lampe", "f", "lamp"),
    Noun("book", "Buch", "n", "book"),
    Noun("car", "Auto", "n", "car"),
    Noun("boat", "Boot", "n", "boat"),
    Noun("umbrella", "Regenschirm", "m", "umbrella"),
    Noun("apple", "Apfel", "m", "apple"),
    Noun("mushroom", "Pilz", "m", "mushroom"),
    Noun("clock", "Uhr", "f", "clock"),
]

# scene -> how English and German say where it is. A cue tells the sense of the ambiguous nouns that name it above.
CUES: dict[str, tuple[str, str]] = {
    "cave": ("in the cave", "in der Höhle"),
    "stadium": ("in the stadium", "im Stadion"),
    "lake": ("at the lake", "am See"),
    "building_site": ("on the building site", "auf der Baustelle"),
    "ice": ("on the ice", "auf dem Eis"),
    "office": ("in the office", "im Büro"),
    "forest": ("in the forest", "im Wald"),
    "party": ("at the party", "auf dem Fest"),
    "fireplace": ("by the fireplace", "am Kamin"),
    "beach": ("on the beach", "am Strand"),
    "hospital": ("in the hospital", "im Krankenhaus"),
    "school": ("in the school", "in der Schule"),
    "castle": ("in the castle", "in der Burg"),
    "airport": ("at the airport", "am Flughafen"),
    "workshop": ("in the workshop", "in der Werkstatt"),
    "stage": ("on the stage", "auf der Bühne"),
    "storm": ("in the storm", "im Gewitter"),
    "desert": ("in the desert", "in der Wüste"),
    "living_room": ("in the living room", "im Wohnzimmer"),
    "harbour": ("in the harbour", "im Hafen"),
}
NEUTRAL: dict[str, tuple[str, str]] = {
    "table": ("on the table", "auf dem Tisch"),
    "wall": ("in front of the wall", "vor der Wand"),
    "shelf": ("next to the shelf", "neben dem Regal"),
    "carpet": ("on the carpet", "auf dem Teppich"),
    "window": ("at the window", "am Fenster"),
    "plain": ("", ""),  # said by the thing's place in the picture
}
PLACE_PHRASES = {
    "left": ("on the left", "links"),
    "middle": ("in the middle", "in der Mitte"),
    "right": ("on the right", "rechts"),
}

ADJECTIVES = {  # size and colour are true of the picture (drawing.Look), the opinions of nothing in it
    "small": "klein", "big": "groß",
    "red": "rot", "blue": "blau", "green": "grün", "yellow": "gelb",
    "brown": "braun", "grey": "grau", "purple": "violett",
    "old": "alt", "new": "neu", "beautiful": "schön", "funny": "lustig", "strange": "seltsam", "pretty": "hübsch",
}  # fmt: skip
OPINIONS = ("old", "new", "beautiful", "funny", "strange", "pretty")

# {a} {the}: noun phrase; {ein} {der}: nominative, {einen} {den}: accusative; {er}: pronoun; {quality}: a bare adjective
SENTENCES: list[tuple[str, str]] = [
    ("{a} is {place} .", "{ein} ist {place} ."),
    ("there is {a} {place} .", "da ist {ein} {place} ."),
    ("today {the} is {place} .", "heute ist {der} {place} ."),
    ("i see {a} {place} .", "ich sehe {einen} {place} ."),
    ("do you see {the} {place} ?", "siehst du {den} {place} ?"),
    ("we are looking for {the} {place} .", "wir suchen {den} {place} ."),
    ("she paints {a} {place} .", "sie malt {einen} {place} ."),
    ("he takes a photo of {the} {place} .", "er fotografiert {den} {place} ."),
    ("the child finds {a} {place} .", "das Kind findet {einen} {place} ."),
    ("{place} the children find {a} .", "{place} finden die Kinder {einen} ."),
    ("this picture shows {a} {place} .", "dieses Bild zeigt {einen} {place} ."),
    ("my friend likes {the} {place} .", "mein Freund mag {den} {place} ."),
    ("nobody knows {the} {place} .", "niemand kennt {den} {place} ."),
    ("{the} {place} is very {quality} .", "{der} {place} ist sehr {quality} ."),
    ("where is {the} ? it is {place} .", "wo ist {der} ? {er} ist {place} ."),
    ("{a} {place} would be {quality} .", "{ein} {place} wäre {quality} ."),
]
CAPTIONS: list[str] = [
    "{a} {place}",
    "{the} {place}",
    "a picture of {a} {place}",
    "{place} there is {a}",
    "{a} that is {place}",
]

ARTICLES = {  # (definite?, accusative?) -> article and adjective ending by gender
    (True, False): {"m": ("der", "e"), "f": ("die", "e"), "n": ("das", "e")},
    (True, True): {"m": ("den", "en"), "f": ("die", "e"), "n": ("das", "e")},
    (False, False): {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es")},
    (False, True): {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")},
}
PRONOUNS = {"m": "er", "f": "sie", "n": "es"}
ACCUSATIVE = {"Hase": "Hasen"}  # the only weak masculine noun; an ambiguous noun has one form, or scoring would miss it


def german_noun_phrase(noun: Noun, adjectives: tuple[str, ...], definite: bool, accusative: bool) -> str:
    """Article, adjectives with their endings, noun.

    >>> german_noun_phrase(AMBIGUOUS[0][1], ("small", "red"), definite=False, accusative=True)
    'einen kleinen roten Schläger'
    """
    article, ending = ARTICLES[definite, accusative][noun.gender]
    word = ACCUSATIVE.get(noun.german, noun.german) if accusative else noun.german
    return " ".join([article, *(ADJECTIVES[a] + ending for a in adjectives), word])


def english_noun_phrase(noun: Noun, adjectives: tuple[str, ...], definite: bool) -> str:
    """Article, adjectives, noun.

    >>> english_noun_phrase(AMBIGUOUS[0][1], ("old",), definite=False)
    'an old bat'
    """
    words = [*adjectives, noun.english]
    article = "the" if definite else "an" if words[0][0] in "aeiou" else "a"
    return " ".join([article, *words])


def english_words(pattern: str, noun: Noun, adjectives: tuple[str, ...], place: str, quality: str) -> str:
    """Fill an English pattern."""
    a, the = (english_noun_phrase(noun, adjectives, definite) for definite in (False, True))
    return pattern.format(a=a, the=the, place=place, quality=quality)


def german_words(pattern: str, noun: Noun, adjectives: tuple[str, ...], place: str, quality: str) -> str:
    """Fill a German pattern."""
    ein, einen, der, den = (german_noun_phrase(noun, adjectives, d, a) for d in (False, True) for a in (False, True))
    er = PRONOUNS[noun.gender]
    return pattern.format(ein=ein, einen=einen, der=der, den=den, er=er, place=place, quality=ADJECTIVES[quality])
