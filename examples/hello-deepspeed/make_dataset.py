#!/usr/bin/env python3
"""Write the example's text and vocabulary: short stories from a small grammar, the same on every machine.

Usage: make_dataset.py [FOLDER]     (default: the folder `data` beside this file)

Each line is a little story of two to six sentences about one person. Nearly every word follows from the
others: who owns what, what an animal eats and where it sleeps, which thing has which colour, what day comes
next, what two numbers make. So a model that reads the context can fill in a masked word, and no other can.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

LINES = 8_000
SEED = 2023

PEOPLE = {
    "she": ["anna", "emma", "julia", "lena", "maria", "nina", "olga", "rosa"],
    "he": ["adam", "boris", "carlos", "david", "felix", "karim", "oscar", "peter"],
}
ANIMALS = {  # what it eats, where it sleeps, the sound it makes
    "cat": ("fish", "kitchen", "purrs"),
    "dog": ("meat", "basket", "barks"),
    "cow": ("grass", "barn", "moos"),
    "horse": ("hay", "stable", "neighs"),
    "hen": ("corn", "nest", "clucks"),
    "rabbit": ("carrots", "hutch", "squeaks"),
    "bee": ("nectar", "hive", "buzzes"),
    "parrot": ("seeds", "cage", "talks"),
}
THINGS = {  # what it is made of, what one does with it
    "cup": ("clay", "drink"),
    "book": ("paper", "read"),
    "chair": ("wood", "sit"),
    "knife": ("steel", "cut"),
    "coat": ("wool", "travel"),
    "drum": ("leather", "play"),
}
COLOURS = ["red", "blue", "green", "yellow", "black", "white"]
DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]  # from two on: "two coins"
CITIES = {
    "cairo": "egypt",
    "delhi": "india",
    "lima": "peru",
    "paris": "france",
    "rome": "italy",
    "tokyo": "japan",
}


def story(rng: random.Random) -> str:
    """One line of text: one or two subjects, with a few sentences each."""
    pronoun = rng.choice(sorted(PEOPLE))
    name = rng.choice(PEOPLE[pronoun])
    their = {"she": "her", "he": "his"}[pronoun]
    sentences = rng.sample([animal, thing, journey, counting], k=rng.choice([1, 2]))
    return " ".join(text for sentence in sentences for text in sentence(rng, name, pronoun, their))


def animal(rng: random.Random, name: str, pronoun: str, their: str) -> list[str]:
    """An animal, its food, its place and its sound."""
    kind = rng.choice(sorted(ANIMALS))
    food, place, sound = ANIMALS[kind]
    colour = rng.choice(COLOURS)
    return [
        f"{name} has a {colour} {kind} .",
        f"the {colour} {kind} eats {food} and sleeps in the {place} .",
        f"when {name} comes home , {their} {kind} {sound} .",
    ]


def thing(rng: random.Random, name: str, pronoun: str, their: str) -> list[str]:
    """A thing, its colour, what it is made of and what it is for."""
    kind = rng.choice(sorted(THINGS))
    stuff, use = THINGS[kind]
    colour = rng.choice(COLOURS)
    return [
        f"{name} buys a {kind} of {stuff} .",
        f"the {kind} is {colour} , and {pronoun} likes {colour} .",
        f"{pronoun} needs the {colour} {kind} to {use} .",
    ]


def journey(rng: random.Random, name: str, pronoun: str, their: str) -> list[str]:
    """A journey that takes a day, to a city in its country."""
    city = rng.choice(sorted(CITIES))
    day = rng.randrange(len(DAYS))
    return [
        f"on {DAYS[day]} {name} goes to {city} in {CITIES[city]} .",
        f"{pronoun} comes back from {city} on {DAYS[(day + 1) % len(DAYS)]} .",
    ]


def counting(rng: random.Random, name: str, pronoun: str, their: str) -> list[str]:
    """A sum."""
    first = rng.randint(2, 8)
    second = rng.randint(2, 10 - first)
    return [
        f"{name} has {NUMBERS[first - 2]} coins and finds {NUMBERS[second - 2]} .",
        f"now {pronoun} has {NUMBERS[first + second - 2]} coins .",
    ]


def make(lines: int = LINES, seed: int = SEED) -> tuple[list[str], list[str]]:
    """The stories and the sorted list of their words: a pure function of its arguments."""
    rng = random.Random(seed)
    stories = [story(rng) for _ in range(lines)]
    return stories, sorted({word for text in stories for word in text.split()})


def main() -> None:
    """Write both files."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    stories, words = make()
    (folder / "stories.txt").write_text("\n".join(stories) + "\n")
    (folder / "vocabulary.txt").write_text("\n".join(words) + "\n")
    print(f"{folder}: {len(stories)} stories, {len(words)} words")


if __name__ == "__main__":
    main()
