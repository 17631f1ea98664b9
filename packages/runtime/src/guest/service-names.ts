/**
 * Names of the services of a recipe. The agent keeps a name as the label of the process, in the memory of the
 * guest, so every fork has it.
 */
import { posix } from "node:path";

const labelPrefix = "service:";
/** what fits into a label of 64 bytes with its prefix and a number */
const maxBytes = 48;

/** A name for each service: its own, or that of its program, with a number where it is taken, also by `others`. */
export function serviceNames(
  services: readonly { name?: string | undefined; argv: readonly string[] }[],
  others: readonly string[] = [],
): string[] {
  const taken = new Set([...others, ...services.flatMap(({ name }) => name ?? [])]);
  return services.map(({ name, argv }) => name ?? free(programName(argv[0] ?? ""), taken));
}

function free(wanted: string, taken: Set<string>): string {
  let name = wanted;
  for (let number = 2; taken.has(name); number++) name = `${wanted}-${number}`;
  taken.add(name);
  return name;
}

/** A program's name without characters that a service name cannot have. */
function programName(program: string): string {
  const name = posix
    .basename(program)
    .replaceAll(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, maxBytes);
  return name === "" ? "service" : name;
}

export function serviceLabel(name: string): string {
  return labelPrefix + name;
}

/**
 * The services among processes, with their names. Labels of earlier versions contain the path of the program
 * and can occur twice.
 */
export function servicesAmong<T extends { label: string }>(
  processes: readonly T[],
): { name: string; process: T }[] {
  const services = processes.filter(({ label }) => label.startsWith(labelPrefix));
  const taken = new Set<string>();
  return services.map((process) => ({
    name: free(programName(process.label.slice(labelPrefix.length)), taken),
    process,
  }));
}
