"""`python -m fracdnn.experiments.stamp RESULTS`: results of older sources that the sources of today still give.

Where the sources of a result have changed, some of its jobs are run again, the first, the last and those between at
equal distances, of those that are not chaotic. If all of them give the same numbers to the last digit, the result takes
the new hash, and its JSON says which jobs were run again; else it stays old: `fracdnn reproduce` has to make it anew.
"""

import sys
from pathlib import Path

from fracdnn.datasets import Perfume, load_perfume
from fracdnn.experiments.jobs import in_parallel, sources_of
from fracdnn.experiments.part import Job, Numbers, Part
from fracdnn.experiments.parts import PARTS
from fracdnn.experiments.results import commit, read_result, write_document

N_JOBS = 6


def checked(part: Part, numbers: Numbers, perfume: Perfume | None, n_jobs: int = N_JOBS) -> list[Job] | None:
    """The jobs that were run again with the same result; None where one differs."""
    jobs, runs = part.jobs(part.full), numbers["runs"]
    steady = [place for place, job in enumerate(jobs) if not part.is_chaotic(job)]
    if len(jobs) != len(runs) or not steady:
        return None
    places = sorted({steady[round(k * (len(steady) - 1) / max(1, n_jobs - 1))] for k in range(n_jobs)})
    found = in_parallel(part.work, [(part.full, perfume, jobs[place]) for place in places])
    same = all({**jobs[places[k]], **each} == runs[places[k]] for k, _, each in found)
    return [jobs[place] for place in places] if same else None


def main(results: Path, perfume_path: Path | None = None) -> int:
    old = []
    for name, part in PARTS.items():
        path = results / f"{name}.json"
        document = read_result(path) if path.exists() else {}
        if not document or document.get("sources") == sources_of(part):
            continue
        perfume = load_perfume(perfume_path) if part.needs_perfume else None
        jobs = checked(part, document["numbers"], perfume)
        if jobs is None:
            old.append(name)
            print(f"{name}: other numbers; run fracdnn reproduce {name}")
            continue
        again = {"commit": commit(), "jobs": jobs}
        write_document(path, {**document, "sources": sources_of(part), "run_again": again})
        print(f"{name}: the same numbers from {len(jobs)} jobs; now of these sources")
    return bool(old)


if __name__ == "__main__":
    sys.exit(main(*(Path(argument) for argument in sys.argv[1:3])))
