import { errorCodes } from "@forkd/contract/wire";
import type { Check, DoctorReport } from "@forkd/contract";
import type { Command } from "commander";
import type { Cli, ToAction } from "../cli.ts";
import { findDaemon } from "../client.ts";
import { examples } from "../help.ts";
import { checkHost } from "../host-checks.ts";
import type { Output } from "../output.ts";
import { clean } from "../table.ts";

const marks = { ok: ["green", "ok  "], warn: ["yellow", "warn"], fail: ["red", "FAIL"] } as const;

export function define(command: Command, toAction: ToAction): void {
  command
    .addHelpText(
      "after",
      examples("forkd doctor", "forkd doctor --json | jq '.checks[] | select(.outcome != \"ok\")'"),
    )
    .action(toAction(doctor));
}

async function doctor(cli: Cli): Promise<number> {
  using _progress = cli.progress("Checking");
  const forkd = await findDaemon(cli.signal);
  const report = forkd
    ? await forkd.doctor({ signal: cli.signal })
    : await checkHost(cli.environment.variables);
  if (cli.out.json) cli.out.document(report);
  else showReport(cli.out, report);
  return report.ok ? 0 : errorCodes.host_not_ready.exit;
}

function showReport(out: Output, report: DoctorReport): void {
  const width = Math.max(...report.checks.map(({ name }) => name.length));
  for (const check of report.checks) showCheck(out, check, width);
  const count = (outcome: Check["outcome"]) =>
    report.checks.filter((check) => check.outcome === outcome).length;
  out.line(
    `${count("ok")} ok, ${count("warn")} warnings, ${count("fail")} failures; accelerator ${report.accelerator}`,
  );
}

function showCheck(out: Output, check: Check, width: number): void {
  const [style, mark] = marks[check.outcome];
  out.line(`${out.style(style, mark)}  ${check.name.padEnd(width)}  ${clean(check.detail)}`);
  if (check.outcome !== "ok" && check.remedy !== undefined) {
    out.line(out.style("dim", `${" ".repeat(width + 8)}${clean(check.remedy)}`));
  }
}
