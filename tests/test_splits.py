"""Which questions a split holds, and which seed a question has: by the seed and its own name, and by nothing else."""

import json
from collections import Counter

from orce.runtime.process import seed_of
from orce.stage_settings import Model, Source, Split
from orce.stages import prompts, sample
from orce.stages.prompts import Settings as Prompts
from orce.tasks.examples import cut

NO_MODEL = Model(source=Source(), dtype="float32", device="cpu")


SPLITS = {
    "sft": Split(origin="train", size="1/3"),
    "rl": Split(origin="train", size=None),
    "test": Split(origin="test", size=5),
}


def options(tmp_path, seed=0, n=20):
    for split in ("train", "test"):
        rows = [json.dumps({"q": f"{split} {i}?", "a": str(i), "id": str(i)}) for i in range(n)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(rows))
    fields = {"question": "q", "answer": "a", "id": "id"}
    source = {"path": str(tmp_path), "fields": fields, "equality": "numeric"}
    return Prompts(dataset="mine", task="qa", source=source, splits=SPLITS, tests=[], seed=seed)


def test_splits_of_one_source_share_nothing_and_leave_nothing(tmp_path):
    drawn = {split: [one["id"] for one in prompts.draw(options(tmp_path), split)] for split in ("sft", "rl")}
    assert {split: len(ids) for split, ids in drawn.items()} == {"sft": 6, "rl": 14}
    assert Counter(drawn["sft"] + drawn["rl"]) == Counter(map(str, range(20)))


def test_a_share_is_rounded_down():
    def part(size, n):
        return cut({"sft": Split(origin="train", size=size)}, "train", n)["sft"].stop

    assert [part("1/3", n) for n in (3, 4, 5, 6)] == [1, 1, 1, 2]
    assert part("2/3", 5) == 3


def test_splits_are_drawn_by_the_seed_and_keep_the_order_of_the_source(tmp_path):
    one, again, other = ([e["id"] for e in prompts.draw(options(tmp_path, seed), "rl")] for seed in (0, 0, 1))
    assert one == again != other
    first = [str(i) for i in range(20)]
    assert one not in (first[:14], first[6:]) and one == sorted(one, key=int)


def test_a_seed_is_that_of_all_its_names_in_their_order():
    named = [("ab", "c"), ("a", "bc"), ("abc",), ("c", "ab"), ()]
    assert len({seed_of(base, *names) for base in (1, 11) for names in named}) == 10
    assert seed_of(1, "1") != seed_of(11)
    assert all(0 <= seed_of(7, *names) < 2**63 for names in named)
    # The first eight bytes of sha256("7" 0x1f "answers" 0x1f "q1"), less the last bit.
    assert seed_of(7, "answers", "q1") == 0xC28B83108A4374F


class Engine:
    """Says the seed that it was given."""

    def generate(self, prompts, n, temperature, max_tokens, seeds, top_p=1.0):
        return [[str(seed)] * n for seed in seeds]


def test_each_question_is_sampled_with_a_seed_of_its_own_whatever_is_sampled_beside_it():
    named = {"task": "qa", "label": "x", "engine": "none", "model": NO_MODEL}
    settings = sample.Settings(shots=None, seed=3, samples=1, temperature=1.0, max_tokens=8, top_p=1.0, **named)
    examples = [
        (
            "rl",
            {"id": str(i), "question": "?", "context": None, "choices": None, "reference": ["1"], "equality": "exact"},
        )
        for i in range(4)
    ]
    together = [one.raw for one in sample.records(examples, Engine(), settings)]
    alone = [sample.records([one], Engine(), settings)[0].raw for one in reversed(examples)]
    assert together == alone[::-1] and len({text for (text,) in together}) == 4
