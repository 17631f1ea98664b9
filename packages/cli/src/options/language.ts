/** The option `--language` of the verbs about warm interpreters. */
import { Option } from "commander";

export function languageOption(): Option {
  return new Option("--language <name>", "Select the interpreter (default: the snapshot's first)").choices([
    "python",
    "node",
  ]);
}
