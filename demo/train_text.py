"""Trains a small network on the documents of this repository, character by character, and writes it as a model.

Usage: train_text.py FOLDER. Writes FOLDER/models/text (config.pbtxt, 1/model.onnx).
"""

import pathlib
import re
import sys
import time

import generator
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCUMENTS = ["README.md", "ARCHITECTURE.md", "STYLE.md", "CONTRIBUTING.md", "docs/records/differences.md", "docs/adr/*.md"]
# What is rarer than this in the documents is left out.
RARE = 4
END = "\n"

CONTEXT, WIDTH, HIDDEN = 12, 16, 256
ROUNDS, BATCH, RATE = 2000, 256, 3e-3
BATCH_OF_SERVER, TEMPERATURE = 16, 0.3


def paragraphs():
    """The documents as paragraphs of one line each, without tables, code and headings."""
    for pattern in DOCUMENTS:
        for path in sorted(ROOT.glob(pattern)):
            text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
            for part in re.split(r"\n\s*\n|\n(?=[-|#] )", text):
                line = " ".join(part.split())
                if len(line) > 40 and line[0] not in "#|<":
                    yield re.sub(r"^- ", "", re.sub(r"[*`]|\]\([^)]*\)|\[", "", line))


def samples(text, alphabet):
    """Every place of each paragraph: the characters before it, and the one that follows. Before a paragraph are ENDs."""
    number = {letter: index for index, letter in enumerate(alphabet)}
    windows = []
    for paragraph in text.split(END)[:-1]:
        numbers = np.array([number[letter] for letter in END * CONTEXT + paragraph + END])
        windows.append(np.lib.stride_tricks.sliding_window_view(numbers, CONTEXT + 1))
    return np.concatenate(windows)


class Trainer:
    """A network of two layers over embedded characters, trained by Adam."""

    def __init__(self, characters):
        random = np.random.default_rng(1)

        def of(rows, columns):
            return random.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)

        self.parameters = [
            random.normal(0, 1, (characters, WIDTH)).astype(np.float32),
            of(CONTEXT * WIDTH, HIDDEN),
            np.zeros(HIDDEN, np.float32),
            of(HIDDEN, characters),
            np.zeros(characters, np.float32),
        ]
        self.moments = [(np.zeros_like(values), np.zeros_like(values)) for values in self.parameters]

    def gradients(self, seen, wanted):
        embedding, matrix1, bias1, matrix2, bias2 = self.parameters
        flat = embedding[seen].reshape(len(seen), -1)
        hidden = np.maximum(flat @ matrix1 + bias1, 0)
        scores = hidden @ matrix2 + bias2
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        rows = np.arange(len(seen))
        loss = -np.log(chances[rows, wanted] + 1e-9).mean()
        chances[rows, wanted] -= 1
        chances /= len(seen)
        back = (chances @ matrix2.T) * (hidden > 0)
        one_hot = np.zeros((seen.size, len(embedding)), np.float32)
        one_hot[np.arange(seen.size), seen.ravel()] = 1
        of_embedding = one_hot.T @ (back @ matrix1.T).reshape(-1, WIDTH)
        return loss, [of_embedding, flat.T @ back, back.sum(axis=0), hidden.T @ chances, chances.sum(axis=0)]

    def step(self, seen, wanted, rate, number):
        loss, gradients = self.gradients(seen, wanted)
        for values, gradient, (mean, square) in zip(self.parameters, gradients, self.moments):
            mean += 0.1 * (gradient - mean)
            square += 0.01 * (gradient**2 - square)
            bare = mean / (1 - 0.9**number), square / (1 - 0.99**number)
            values -= rate * bare[0] / (np.sqrt(bare[1]) + 1e-8)
        return loss


def main():
    folder = pathlib.Path(sys.argv[1])
    text = "".join(paragraph + END for paragraph in paragraphs())
    common = sorted({letter for letter in text if text.count(letter) >= RARE} - {END})
    alphabet = [END, *common]
    text = "".join(letter for letter in text if letter in set(alphabet))
    print(f"   {len(text)} characters of {len(alphabet)} kinds", flush=True)

    places = samples(text, alphabet)
    trainer, random, started = Trainer(len(alphabet)), np.random.default_rng(2), time.monotonic()
    for number in range(1, ROUNDS + 1):
        batch = places[random.integers(0, len(places), BATCH)]
        rate = RATE * (1 - number / (ROUNDS + 1))
        loss = trainer.step(batch[:, :-1], batch[:, -1], rate, number)
        if number % (ROUNDS // 5) == 0:
            print(f"   {number} of {ROUNDS} rounds, {loss:.2f} nats per character", flush=True)
    embedding, matrix1, bias1, matrix2, bias2 = trainer.parameters
    weights = generator.Weights(alphabet, embedding, [(matrix1, bias1), (matrix2, bias2)])
    generator.write(folder / "models", "text", weights, CONTEXT, BATCH_OF_SERVER, TEMPERATURE, END)
    size = sum(values.size for values in trainer.parameters)
    print(f"   a network of {size} numbers in {time.monotonic() - started:.1f} s")


main()
