"""American Invitational Mathematics Examination of 2025 in German, Spanish, French and Japanese.

The verifier is that of `math_with_judge`. The prompt asks in the problem's language, in our own words. The
score is the mean over 8 rollouts of a problem, and the same by language; ``aime25_x:de`` has one language.
The names of the files are those under which the hub's library stores splits. Source: NVIDIA's translations
(nvidia/Nemotron-Multilinugual-Eval-AIME25), whose licence its card says; the example rows are our own.
"""

from __future__ import annotations

from msgspec.structs import replace

from gym_resources.benchmarks import aime24_x
from gym_resources.published_sets.languages import NVIDIA, in_languages

environment = replace(
    aime24_x.environment,
    description="American Invitational Mathematics Examination 2025 in four languages.",
    data_license="see the card of nvidia/Nemotron-Multilinugual-Eval-AIME25",
    datasets=in_languages(
        "nvidia/Nemotron-Multilinugual-Eval-AIME25",
        "data/{}-00000-of-00001.parquet",
        NVIDIA,
        aime24_x.row,
        "",
    ),
)
