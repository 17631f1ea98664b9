/** The columns of `ps ID`. */
import type { ExecInfo } from "@forkd/contract";
import { formatBytes, formatSeconds, type Column } from "../terminal/table.ts";

export const commandColumns: readonly Column<ExecInfo>[] = [
  { title: "COMMAND ID", value: ({ exec_id }) => String(exec_id) },
  { title: "STATE", value: ({ state }) => state },
  { title: "EXIT", value: ({ exit_code }) => String(exit_code ?? "-"), align: "right" },
  {
    title: "AGE",
    value: ({ age_secs }) => (age_secs === undefined ? "-" : formatSeconds(age_secs)),
    align: "right",
  },
  { title: "PID", value: ({ pid }) => String(pid), align: "right" },
  {
    title: "OUTPUT",
    value: ({ stdout_bytes, stderr_bytes }) => formatBytes(stdout_bytes + stderr_bytes),
    align: "right",
  },
  { title: "OPTIONS", value: (info) => optionsOf(info) || "-" },
  { title: "COMMAND", value: (info) => formatCommand(info) },
];

/** The options of `exec` that the command was started with. */
function optionsOf({ stdin_open, pty }: ExecInfo): string {
  return [...(stdin_open ? ["-i"] : []), ...(pty ? ["-t"] : [])].join(" ");
}

/** The command as a shell would read it. */
function formatCommand({ args, command }: Pick<ExecInfo, "args" | "command">): string {
  return (args ?? [command]).map(quoted).join(" ");
}

function quoted(argument: string): string {
  return /^[\w@%+=:,./-]+$/.test(argument) ? argument : `'${argument.replaceAll("'", `'\\''`)}'`;
}
