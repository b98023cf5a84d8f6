"""The laboratory's second run: its page is what the released items give, and the items are the released ones."""

import hashlib
import re

import numpy as np
import pandas as pd
import pytest
from evidence.decisive import report
from evidence.lab import second_page

PAGE = second_page.PAGE.read_text(encoding="utf-8")


def block(name):
    return PAGE.split(f"<!-- evidence: {name} -->")[1].split("<!-- end -->")[0].strip()


@pytest.fixture(scope="module")
def e_aurc():
    return second_page.levels(second_page.read())


def test_the_items_are_the_released_ones():
    lines = (second_page.ITEMS / report.SUMS).read_text().splitlines()
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in second_page.ITEMS.glob("*.gz")}
    assert dict(reversed(line.split("  ")) for line in lines) == files


def test_the_pages_contrasts_are_those_of_the_items(e_aurc):
    assert second_page.contrast_tables(e_aurc) == block("contrasts")
    assert second_page.group_table(e_aurc) == block("groups")


def test_every_interval_that_the_page_quotes_is_a_contrast_of_the_items(e_aurc):
    given = {
        "{difference:+.3f} [{low:+.3f}, {high:+.3f}]".format(**of)
        for family in second_page.FAMILIES
        for _, of in second_page.differences(e_aurc, family).iterrows()
    }
    prose = " ".join(re.sub(r"<!-- evidence.*?<!-- end -->", "", PAGE, flags=re.DOTALL).split())
    quoted = re.findall(r"[+-]0\.\d{3} \[[^\]]*\]", prose)
    assert len(quoted) > 8 and set(quoted) <= given


def test_a_better_arm_is_called_better_and_a_reversed_difference_worse():
    rng = np.random.default_rng(0)
    level = rng.uniform(0.1, 0.3, 40)
    arms = {arm for family in second_page.FAMILIES.values() for pair in family for arm in pair}
    arms |= {arm for pair in second_page.BESIDE for arm in pair}
    table = pd.DataFrame({arm: level + rng.normal(0, 0.001, 40) for arm in sorted(arms)})
    table["ordered"] -= 0.05
    table["orce"] += 0.05
    said = second_page.differences(table, "mean")["verdict"]
    assert said["ordered - soft"] == said["ordered - sft_all"] == "better"
    assert said["orce - sft_all"] == said["orce - other"] == "worse"
    assert said["soft - sft_all"] == "no difference that matters"
