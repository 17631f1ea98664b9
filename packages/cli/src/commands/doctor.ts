import { AppError, errorCodes, plural } from "@forkd/contract/wire";
import type { Check, DoctorReport } from "@forkd/contract";
import { wireOf, type Forkd } from "@forkd/sdk";
import type { Command } from "commander";
import { usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { findDaemon } from "../daemon/client.ts";
import { installAdvice, missingPackages } from "../daemon/host-packages.ts";
import { examples } from "../options/help.ts";
import { fixHost, inspectHost, type Fixed } from "../daemon/local.ts";
import type { Output } from "../terminal/output.ts";
import { checkRemedy } from "../terminal/remedies.ts";
import { clean } from "../terminal/table.ts";
import { ownVersion } from "../version.ts";

const marks = { ok: ["green", "ok  "], warn: ["yellow", "warn"], fail: ["red", "FAIL"] } as const;

type Options = { fix?: true; boot: boolean };

export function define(command: Command, toAction: ToAction): void {
  command
    .option("--fix", "Make safe repairs before the checks")
    .option("--no-boot", "Do not start a small guest on each accelerator")
    .addHelpText(
      "after",
      "\n--fix creates directories, corrects permissions, removes stale sockets and compiles missing parts.\n" +
        examples(
          "forkd doctor",
          "forkd doctor --fix",
          "forkd doctor --no-boot --json | jq '.checks[] | select(.outcome != \"ok\")'",
        ),
    )
    .action(toAction(doctor));
}

async function doctor(cli: Cli, { fix, boot }: Options): Promise<number> {
  const env = cli.environment.variables;
  if (fix && cli.environment.url !== undefined)
    throw usage("--fix repairs this host, not the one of FORKD_URL");
  using progress = cli.progress(boot ? "Checking the host and starting a small guest" : "Checking the host");
  const forkd = await findDaemon(cli.signal);
  const fixed = fix ? await fixHost(env, { boot, isRunning: forkd !== undefined }) : [];
  const report = forkd ? await askDaemon(cli, forkd, boot) : withIdleDaemon(await inspectHost(env, { boot }));
  progress[Symbol.dispose]();
  const checks = [...report.checks.map(inCliWords), ...(await versionChecks(report))];
  if (cli.out.json) cli.out.document({ ...report, checks, ...(fix && { fixed }) });
  else showReport(cli.out, { ...report, checks }, fixed);
  return report.ok ? 0 : errorCodes.host_not_ready.exit;
}

/** A key with the scope "read" may not start a guest. */
async function askDaemon(cli: Cli, forkd: Forkd, boot: boolean): Promise<DoctorReport> {
  try {
    return wireOf(await forkd.doctor({ boot, signal: cli.signal }));
  } catch (error) {
    if (!boot || !(error instanceof AppError) || error.code !== "forbidden") throw error;
    cli.out.note(`The daemon starts no guest: ${error.message}`);
    return wireOf(await forkd.doctor({ boot: false, signal: cli.signal }));
  }
}

function withIdleDaemon(report: DoctorReport): DoctorReport {
  const daemon: Check = {
    name: "daemon",
    outcome: "warn",
    detail: "not running, so this host was checked from here",
    remedy: "Run `forkd up` to start it.",
  };
  return { ...report, checks: [daemon, ...report.checks] };
}

function inCliWords(check: Check): Check {
  const remedy = checkRemedy(check);
  return remedy === undefined ? check : { ...check, remedy };
}

async function versionChecks({ daemon }: DoctorReport): Promise<Check[]> {
  if (!daemon) return [];
  const own = ownVersion();
  if (daemon.version === own)
    return [{ name: "versions", outcome: "ok", detail: `CLI and daemon are ${own}` }];
  const detail = `the CLI is ${own}, the daemon ${daemon.version} (pid ${daemon.pid})`;
  return [
    {
      name: "versions",
      outcome: "warn",
      detail,
      remedy: "Start the daemon of this version, as docs/operate/operating.md describes.",
    },
  ];
}

function showReport(out: Output, report: DoctorReport, fixed: readonly Fixed[]): void {
  for (const { name, done } of fixed) out.line(`${out.style("bold", "fix ")}  ${name}: ${clean(done)}`);
  const width = Math.max(...report.checks.map(({ name }) => name.length));
  for (const check of report.checks) showCheck(out, check, width);
  const count = (outcome: Check["outcome"]) =>
    report.checks.filter((check) => check.outcome === outcome).length;
  out.line(
    `${count("ok")} ok, ${plural(count("warn"), "warning")}, ${plural(count("fail"), "failure")}; accelerator ${report.accelerator}`,
  );
  const packages = missingPackages(report.checks);
  if (packages.length > 0) out.line(`Packages are missing. ${installAdvice(packages)}`);
}

function showCheck(out: Output, check: Check, width: number): void {
  const [style, mark] = marks[check.outcome];
  out.line(`${out.style(style, mark)}  ${check.name.padEnd(width)}  ${clean(check.detail)}`);
  if (check.outcome !== "ok" && check.remedy !== undefined) {
    out.line(out.style("dim", `${" ".repeat(width + 8)}${clean(check.remedy)}`));
  }
}
