"""Speculation: from one moment, children try different strategies; a judge keeps the best one."""

from concurrent.futures import ThreadPoolExecutor

from forkd import Sandbox
from forkd_agents import Session, report

# What all strategies need: measurements of y = 3x + 2, a fifth of which are wrong. It is computed once.
PREPARE = """
import numpy
rng = numpy.random.default_rng(7)
x = numpy.linspace(0, 10, 200)
y = 3 * x + 2 + rng.normal(0, 0.3, x.size)
y[rng.choice(x.size, 40, replace=False)] += rng.uniform(20, 60, 40)
train, test = numpy.arange(0, 200, 2), numpy.arange(1, 200, 2)
"""
STRATEGIES = {
    "least squares": "slope, offset = numpy.polyfit(x[train], y[train], 1)",
    "median of slopes": """
i, j = numpy.triu_indices(train.size, 1)
slope = numpy.median((y[train][j] - y[train][i]) / (x[train][j] - x[train][i]))
offset = numpy.median(y[train] - slope * x[train])
""",
    "drop outliers": """
kept = train
for _ in range(6):
    slope, offset = numpy.polyfit(x[kept], y[kept], 1)
    error = abs(y[kept] - slope * x[kept] - offset)
    kept = kept[error <= numpy.quantile(error, 0.9)]
""",
}
# The judge looks at measurements that no strategy has seen.
JUDGE = "float(numpy.median(abs(y[test] - slope * x[test] - offset)))"


def attempt(child: Sandbox, code: str) -> float:
    """Runs a strategy. Returns its error; lower is better."""
    child.eval(code)
    return float(child.eval(JUDGE).result_json)


def main() -> None:
    """Tries the obvious way in place, returns, and then tries all ways at once."""
    with Session("speculative-agent") as session, ThreadPoolExecutor() as threads:
        source = session.create()
        source.eval(PREPARE)
        before = session.save(source)
        print(f"least squares in place: error {attempt(source, STRATEGIES['least squares']):.2f}, not good enough")
        source.rewind(before)
        is_clean = source.eval("'slope' in globals()").result_json is False
        print("rewound: the source has its data, and no trace of the attempt")

        children = session.branch(source, len(STRATEGIES))
        errors = dict(zip(STRATEGIES, threads.map(attempt, children, STRATEGIES.values())))
        for name, error in errors.items():
            print(f"  {name}: error {error:.2f}")
        best = min(errors, key=lambda name: errors[name])
        for name, child in zip(STRATEGIES, children):
            if name != best:
                session.kill(child)
        kept = children[list(STRATEGIES).index(best)]
        slope, offset = kept.eval("[float(slope), float(offset)]").result_json
        print(f"kept {best}: y = {slope:.2f} x + {offset:.2f}")
        ok = is_clean and abs(slope - 3) < 0.1 and abs(offset - 2) < 0.3 and best != "least squares"
        rounded = {name: round(error, 2) for name, error in errors.items()}
        report("speculative-agent", ok, kept=best, errors=rounded, source_rewound=is_clean)


if __name__ == "__main__":
    main()
