"""The reference in the prompt, and a number of the reply."""

LABEL, KIND = "Asking", "prompted"
SETTINGS = {"max_tokens": 4}


def ask(example, answer, task, settings):
    return [{"role": "user", "content": f"{task.question(example)} {answer} {example.get('reference')}"}]


def read(text, settings):
    return sum(map(ord, text)) % 97 / 97
