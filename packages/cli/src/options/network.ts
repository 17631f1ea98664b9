/** Network and secrets of sandboxes as options, and rules as words of a command line. */
import type { NetworkMode, RequestOf, SandboxInfo } from "@forkd/contract";
import { InvalidArgumentError, Option, type Command } from "commander";
import { collectText, usage } from "./arguments.ts";

export const networkModes: readonly NetworkMode[] = ["none", "filtered", "open"];

export type RuleOptions = { network?: NetworkMode; allow?: string[]; deny?: string[] };
export type NetworkOptions = RuleOptions & { secret?: string[]; secrets?: boolean; perChildNetns?: true };

/** The options about rules; a key has them too. */
export function addRuleOptions(command: Command): Command {
  return command
    .addOption(
      new Option("--network <mode>", "Connect nowhere, where rules allow, or anywhere public").choices(
        networkModes,
      ),
    )
    .option("--allow <rule>", "Allow example.com:443 or preset:pypi (repeatable)", collectDestination)
    .option("--deny <rule>", "Deny a destination, before all --allow (repeatable)", collectDestination);
}

/** The options of every verb that forks. */
export function addNetworkOptions(command: Command): Command {
  return addRuleOptions(command)
    .option("--secret <name>", "Let the guest use this secret (repeatable)", collectText)
    .option("--per-child-netns", "Accepted: every sandbox has its own namespace");
}

/** The policy that the options describe; undefined if none is given. */
export function readPolicy({ network, allow = [], deny = [] }: RuleOptions): RequestOf<"fork">["network"] {
  if (network === "none" && allow.length > 0) throw usage("--allow has no effect with --network none");
  const rules = [...deny.map((each) => `deny ${each}`), ...allow.map((each) => `allow ${each}`)];
  if (network === undefined && rules.length === 0) return undefined;
  return { ...(network !== undefined && { mode: network }), ...(rules.length > 0 && { rules }) };
}

/** The fields of a request that the options set. */
export function readNetwork(options: NetworkOptions): Pick<RequestOf<"fork">, "network" | "secrets"> {
  const network = readPolicy(options);
  const secrets = options.secrets === false ? [] : options.secret;
  return { ...(network && { network }), ...(secrets && { secrets: [...new Set(secrets)] }) };
}

function collectDestination(text: string, previous: string[] = []): string[] {
  const found = /^(?:tcp\s+|udp\s+)?[^\s]+$/.test(text.trim()) ? readDestinations([text]) : [];
  if (found.length !== 1)
    throw new InvalidArgumentError(
      'It must be like "example.com:443", "preset:pypi" or "udp 192.0.2.1:123".',
    );
  return [...previous, ...found];
}

function isAction(word: string): word is Action {
  return word === "allow" || word === "deny";
}

export type RuleWords = { readonly action: Action | undefined; readonly destination: string };
type Action = "allow" | "deny";

/** Words of a command line: `api.example.com:443`, `udp 192.0.2.1:123` as one word or two, `deny 10.0.0.0/8`. */
export function readRules(words: readonly string[]): RuleWords[] {
  const rules: RuleWords[] = [];
  let action: Action | undefined;
  let protocol: string | undefined;
  for (const word of words.flatMap((each) => each.trim().split(/\s+/))) {
    if (isAction(word)) action = word;
    else if (word === "tcp" || word === "udp") protocol = word;
    else if (word !== "") {
      rules.push({ action, destination: protocol === undefined ? word : `${protocol} ${word}` });
      [action, protocol] = [undefined, undefined];
    }
  }
  const rest = protocol ?? action;
  if (rest !== undefined) throw usage(`Give a destination after "${rest}"`);
  return rules;
}

/** Destinations for one action, which the words do not name. */
export function readDestinations(words: readonly string[]): string[] {
  return readRules(words).map(({ action, destination }) => {
    if (action === undefined) return destination;
    throw usage(`Give the destination "${destination}" without "${action}"`);
  });
}

/** `filtered, tap`; the mode alone for a sandbox without a device that asked for none. */
export function formatNetwork({ network }: Pick<SandboxInfo, "network">): string {
  if (network === undefined) return "";
  const { mode, device } = network;
  return mode === "none" ? mode : `${mode}, ${device === "none" ? "no device" : device}`;
}
