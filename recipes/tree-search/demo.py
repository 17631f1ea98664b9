"""Beam search over running sandboxes: each step branches the best ones, and every child makes another move."""

from concurrent.futures import ThreadPoolExecutor
from typing import List, Tuple

from forkd import Sandbox
from forkd_agents import Session, report

TARGET, WIDTH, DEPTH = 10, 2, 6
MOVES = ["n + 3", "n * 2", "n - 1"]
# A child reads its own move as a file. Its state, n and path, is the one that its parent had in memory.
STEP = """
import json
move = json.load(open("/run/forkd/values.json"))
n, path = eval(move), path + [move]
(abs(TARGET - n), path)
"""
Node = Tuple[int, List[str], Sandbox]


def move(child: Sandbox) -> Node:
    """Makes the child's move. Returns how far it is from the target."""
    distance, path = child.eval(STEP).result_json
    return distance, path, child


def main() -> None:
    """Searches from 1 to TARGET."""
    vary = [{"values": each} for each in MOVES]
    with Session("tree-search") as session, ThreadPoolExecutor(max_workers=WIDTH * len(MOVES)) as threads:
        root = session.create()
        root.eval(f"TARGET, n, path = {TARGET}, 1, []")
        beam: List[Node] = [(TARGET, [], root)]
        for depth in range(DEPTH):
            children = [child for node in beam for child in session.branch(node[2], len(MOVES), vary)]
            tried = sorted(threads.map(move, children), key=lambda node: node[:2])
            for _, _, sandbox in beam + tried[WIDTH:]:
                session.kill(sandbox)
            beam = tried[:WIDTH]
            print(f"step {depth}: {len(children)} children, the best is {beam[0][0]} away")
            if beam[0][0] == 0:
                break
        distance, path, best = beam[0]
        found = best.eval("n").result_json
        print(f"1 becomes {found} by {', '.join(path)}")
        ok = distance == 0 and found == TARGET
        report("tree-search", ok, path=path, sandboxes=session.forks, branches=len(session.branches))


if __name__ == "__main__":
    main()
