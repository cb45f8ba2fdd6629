"""Which tables there are, and whose rows each holds. Chosen by names and columns, before any run.

A family is a set of tables that share rows: it is on one side of the study as a whole.
"""

from dataclasses import dataclass
from hashlib import sha256


@dataclass(frozen=True)
class Source:
    """A table of a package: its target, columns that tell the target or name a row, and its family if not itself."""

    package: str
    item: str
    target: str
    without: tuple[str, ...] = ()
    family: str = ""


# Classes: tables of R with categories and holes, which KEEL's have not.
CLASSES = (
    Source("modeldata", "ad_data", "Class"),
    Source("modeldata", "attrition", "Attrition"),
    Source("modeldata", "cells", "class", ("case",)),
    Source("modeldata", "credit_data", "Status"),
    Source("modeldata", "hpc_data", "class"),
    Source("modeldata", "leaf_id_flavia", "species"),
    Source("modeldata", "lending_club", "Class", family="lending club"),
    Source("modeldata", "mlc_churn", "churn"),
    Source("modeldata", "wa_churn", "churn"),
    Source("modeldata", "penguins", "species"),
    Source("modeldata", "scat", "Species"),
    Source("modeldata", "stackoverflow", "Remote"),
    Source("ISLR", "Caravan", "Purchase"),
    Source("ISLR", "OJ", "Purchase"),
    Source("AER", "HMDA", "deny"),
    Source("carData", "Chile", "vote"),
    Source("carData", "BEPS", "vote"),
    Source("MASS", "fgl", "type", family="glass"),
    Source("MASS", "survey", "Sex"),
    Source("survival", "pbc", "status", ("id", "time")),
    Source("openintro", "email", "spam", ("time",)),
    Source("openintro", "ncbirths", "lowbirthweight", ("weight",)),
    Source("dslabs", "olive", "area", ("region",)),
    Source("DAAG", "mifem", "outcome"),
    Source("DAAG", "nassCDS", "dead", ("caseid", "injSeverity")),
    Source("vcdExtra", "ICU", "died"),
    Source("vcdExtra", "Titanicp", "survived", family="titanic"),
    Source("medicaldata", "indo_rct", "outcome", ("id", "bleed")),
    Source("Stat2Data", "Hawks", "Species", ("CaptureTime", "ReleaseTime", "BandNumber")),
)

NUMBERS = (
    Source("MASS", "Boston", "medv"),
    Source("MASS", "cpus", "perf", ("name", "estperf")),
    Source("ISLR", "Auto", "mpg", ("name",)),
    Source("ISLR", "Carseats", "Sales"),
    Source("ISLR", "College", "Outstate"),
    Source("ISLR", "Credit", "Balance", ("ID",)),
    Source("ISLR", "Hitters", "Salary"),
    Source("ISLR", "Wage", "wage", ("logwage",)),
    Source("AER", "Affairs", "affairs"),
    Source("AER", "CASchools", "math", ("district", "school", "read")),
    Source("AER", "CollegeDistance", "score"),
    Source("AER", "CPS1985", "wage"),
    Source("AER", "HousePrices", "price"),
    Source("AER", "NMES1988", "visits"),
    Source("AER", "TeachingRatings", "eval", ("prof",)),
    Source("carData", "Salaries", "salary"),
    Source("carData", "SLID", "wages"),
    Source("crch", "RainIbk", "rain"),
    Source("Ecdat", "Computers", "price"),
    Source("Ecdat", "MedExp", "med"),
    Source("Ecdat", "Wages1", "wage"),
    Source("ggplot2", "diamonds", "price"),
    Source("HSAUR", "Forbes2000", "marketvalue", ("rank", "name")),
    Source("mlmRev", "Exam", "normexam", ("student",)),
    Source("modeldata", "ames", "Sale_Price"),
    Source("modeldata", "biomass", "HHV", ("sample", "dataset")),
    Source("modeldata", "car_prices", "Price"),
    Source("modeldata", "chem_proc_yield", "yield"),
    Source("modeldata", "concrete", "compressive_strength"),
    Source("modeldata", "deliveries", "time_to_delivery"),
    Source("modeldata", "hotel_rates", "avg_price_per_room", ("arrival_date",)),
    Source("modeldata", "meats", "protein", ("water", "fat")),
    Source("modeldata", "Sacramento", "price"),
    Source("mosaicData", "Gestation", "wt", ("id", "date")),
    Source("mosaicData", "SaratogaHouses", "price"),
    Source("openintro", "bdims", "wgt"),
    Source("openintro", "births14", "weight", ("lowbirthweight",)),
    Source("openintro", "fastfood", "calories", ("item",)),
    Source(
        "openintro",
        "loans_full_schema",
        "interest_rate",
        ("emp_title", "grade", "sub_grade", "installment", "balance", "paid_total", "paid_principal", "paid_interest"),
        family="lending club",
    ),
    Source("reshape2", "tips", "tip"),
    Source(
        "Stat2Data",
        "GrinnellHouses",
        "SalePrice",
        ("Date", "Address", "CostPerSqFt", "OrigPrice", "ListPrice", "SPLPPct"),
    ),
    Source("wooldridge", "bwght2", "bwght", ("lbw", "vlbw", "lbwght")),
    Source("wooldridge", "gpa2", "colgpa"),
    Source("wooldridge", "mlb1", "salary", ("lsalary",)),
    Source("wooldridge", "nbasal", "wage", ("lwage",)),
    Source("wooldridge", "sleep75", "sleep", ("case", "slpnaps", "leis1", "leis2", "leis3", "rlxall")),
)

# KEEL's variants begin with the name of the table whose classes they join or leave out.
KEEL_BASES = (
    *("abalone", "car", "cleveland", "dermatology", "ecoli", "flare", "glass", "haberman", "iris", "kddcup", "kr-vs-k"),
    *("led7digit", "lymphography", "new-thyroid", "page-blocks", "pima", "poker", "segment", "shuttle", "vehicle"),
    *("vowel", "winequality", "wisconsin", "yeast", "zoo"),
)
# Other names of the same rows: crx is australian before its names were hidden, heart a part of cleveland, digits of
# optdigits.
SAME_ROWS = {"crx": "australian", "cleveland": "heart", "wdbc": "breast_cancer", "digits": "optdigits"}

# Looked at before this study: the tables of the one before it, of the defaults, and of the report that asked for it.
SEEN = frozenset(
    (
        *("letter", "penbased", "satimage", "optdigits", "texture", "phoneme", "banana", "segment", "vowel", "vehicle"),
        *("breast_cancer", "wine", "iris", "diabetes"),
        *("pima", "australian", "ionosphere", "sonar", "spambase", "german", "contraceptive", "splice", "ring"),
    )
)


def family_of(name: str) -> str:
    """Of a table of any package."""
    return _FAMILIES.get(name) or keel_family(name)


def is_of_classes(name: str) -> bool:
    return name != "diabetes" and all(source.item != name for source in NUMBERS)


def keel_family(name: str) -> str:
    base = next((base for base in KEEL_BASES if name.startswith(base)), name)
    return SAME_ROWS.get(base, base)


def half_of(family: str) -> str:
    """Which half: what was looked at before is for development, of the others a hash of the name decides."""
    if family in SEEN:
        return "development"
    return ("development", "report")[_hash(family) % 2]


def one_of_each_family(variants: list[str], taken: set[str]) -> list[str]:
    """KEEL's variants of tables that nothing stands for yet, the one with the smallest hash of each."""
    found: dict[str, str] = {}
    for name in sorted(variants, key=_hash):
        if keel_family(name) not in taken:
            found.setdefault(keel_family(name), name)
    return sorted(found.values())


_FAMILIES = {source.item: source.family or source.item for source in (*CLASSES, *NUMBERS)} | {
    "digits": SAME_ROWS["digits"],
    "diabetes": "diabetes",
}


def _hash(name: str) -> int:
    return int(sha256(name.encode()).hexdigest(), 16)
