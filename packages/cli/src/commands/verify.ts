import { errorCodes, hazardIds, plural } from "@forkd/contract/wire";
import type { HazardId, HazardOutcome, HazardResult, VerifyReport } from "@forkd/contract";
import { wireOf } from "@forkd/sdk";
import type { Command } from "commander";
import { usage, wholeNumber } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { addTableOption, examples } from "../options/help.ts";
import type { Output } from "../terminal/output.ts";
import { clean, type Column } from "../terminal/table.ts";

const words: Readonly<Record<HazardOutcome, string>> = {
  pass: "pass",
  warn: "warn",
  fail: "FAIL",
  not_applicable: "not applicable",
};

const columns: readonly Column<HazardResult>[] = [
  { title: "HAZARD", value: ({ id }) => id },
  { title: "RESULT", value: ({ outcome }) => words[outcome] },
  { title: "FOUND", value: ({ detail }) => detail },
  { title: "POLICY", value: ({ policy }) => policy, drop: 2 },
  { title: "MECHANISM", value: ({ mechanism }) => mechanism, drop: 1 },
];

export function define(command: Command, toAction: ToAction): void {
  addTableOption(command)
    .argument("<tag>", "Tag of a snapshot")
    .option("-n, --n <count>", "Fork this many children (default: 4)", wholeNumber(2, 32))
    .option("--only <hazards>", "Check only these, separated by commas", parseHazards)
    .option("--keep", "Leave the children and their branch for inspection")
    .addHelpText(
      "after",
      `\nHazards: ${hazardIds.slice(0, 8).join(", ")},\n         ${hazardIds.slice(8).join(", ")}.\n` +
        `Exits with ${errorCodes.unsafe_snapshot.exit} if a check fails. A warning does not change the exit code.\n` +
        examples(
          "forkd verify python-numpy",
          "forkd verify python-numpy --only entropy,prng -n 8",
          "forkd verify python-numpy --json | jq -r '.hazards[] | [.id, .outcome] | @tsv'",
        ),
    )
    .action(toAction(verify));
}

type Options = { n?: number; only?: HazardId[]; keep?: true };

function parseHazards(text: string): HazardId[] {
  return text.split(",").map((name) => {
    const id = hazardIds.find((each) => each === name.trim());
    if (id === undefined) throw usage(`"${name}" is not a hazard. Hazards: ${hazardIds.join(", ")}`);
    return id;
  });
}

async function verify(cli: Cli, { n, only, keep }: Options, tag: string): Promise<number> {
  const forkd = await cli.daemon();
  using progress = cli.progress(`Checking ${tag}`);
  let done = 0;
  const report = await forkd.snapshots.verify(tag, {
    n,
    only: only && [...new Set(only)],
    keep,
    signal: cli.signal,
    onProgress: ({ message }) => progress.update(`${tag}: ${message}`),
    onHazard: ({ id, outcome }) => progress.update(`${tag}: ${++done} checked, ${id}: ${words[outcome]}`),
  });
  progress[Symbol.dispose]();
  if (cli.out.json) cli.out.document(wireOf(report));
  else await showReport(cli.out, wireOf(report));
  return report.outcome === "fail" ? errorCodes.unsafe_snapshot.exit : 0;
}

async function showReport(out: Output, report: VerifyReport): Promise<void> {
  const { hazards, children, kept } = report;
  await out.bytes(out.table(columns, hazards));
  for (const { id, outcome, remedy } of hazards) {
    if (remedy === undefined || outcome === "pass") continue;
    out.line(`${out.style(outcome === "fail" ? "red" : "yellow", `${id}:`)} ${clean(remedy)}`);
  }
  const count = (outcome: HazardOutcome) => hazards.filter((hazard) => hazard.outcome === outcome).length;
  const counts = `${count("pass")} passed, ${plural(count("warn"), "warning")}, ${plural(count("fail"), "failure")}, ${count("not_applicable")} not applicable`;
  const from = `${children.forked} children, ${children.pooled} from the pool, ${children.branched} of a branch`;
  out.line(`${counts}; ${from}`);
  if (kept) out.note(`Kept: ${[...kept.sandboxes.map((id) => out.id(id)), ...kept.snapshots].join(" ")}`);
}
