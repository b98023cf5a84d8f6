"""Prompts that are tokenized together are those that are tokenized one by one, and each only once where that is asked."""

from transformers import AutoTokenizer

from orce.llm.chat import prompt_ids, prompts_ids

CONVERSATIONS = [[{"role": "user", "content": f"What is {i} + {i * i}?"}] for i in range(5)]


def test_prompts_tokenized_together_are_those_tokenized_one_by_one(tiny):
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    assert prompts_ids(tokenizer, CONVERSATIONS) == [prompt_ids(tokenizer, one) for one in CONVERSATIONS]
    assert prompts_ids(tokenizer, []) == []


def test_what_is_kept_is_not_tokenized_again_and_only_for_the_next_call(tiny):
    sized, generating = (AutoTokenizer.from_pretrained(tiny) for _ in range(2))  # the engine's own is another object
    expected = prompts_ids(sized, CONVERSATIONS, keep=True)
    rendered = []
    apply = generating.apply_chat_template
    generating.apply_chat_template = lambda messages, **more: rendered.append(messages) or apply(messages, **more)
    assert prompts_ids(generating, CONVERSATIONS[:3]) == expected[:3] and rendered == []
    assert prompts_ids(generating, CONVERSATIONS) == expected and rendered == CONVERSATIONS[:3]
