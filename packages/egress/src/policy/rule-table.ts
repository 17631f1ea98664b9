/**
 * Rules by what they match, so that a decision does not read them all: names and suffixes by hash, ranges by hash
 * for each prefix length that occurs. Each list is in the order of the rules; the smallest index wins.
 */
import type { Destination, Protocol } from "../types.ts";
import { mask4, mask6, type Address } from "./address.ts";
import type { SourcedRule } from "./presets.ts";
import type { PortRange } from "./rule.ts";

type Entry = { readonly index: number; readonly matches: (protocol: Protocol, port: number) => boolean };
type Lists<K> = Map<K, Entry[]>;

export class RuleTable {
  readonly #names: Lists<string> = new Map();
  readonly #suffixes: Lists<string> = new Map();
  readonly #ranges4 = new Map<number, Lists<number>>();
  readonly #ranges6 = new Map<number, Lists<bigint>>();
  readonly #any: Entry[] = [];
  readonly #denyAny: Entry[] = [];

  constructor(rules: readonly SourcedRule[]) {
    for (const [index, { rule }] of rules.entries()) {
      const { target } = rule;
      const protocol = rule.protocol ?? (rule.action === "allow" ? "tcp" : undefined);
      const entry = { index, matches: matcher(protocol, rule.ports) };
      if (target.kind === "any") {
        this.#any.push(entry);
        if (rule.action === "deny") this.#denyAny.push(entry);
      }
      if (target.kind === "name") add(this.#names, target.name, entry);
      else if (target.kind === "wildcard") add(this.#suffixes, target.suffix, entry);
      else if (target.kind === "cidr") this.#addRange(target.address, target.prefix, entry);
    }
  }

  #addRange(address: Address, prefix: number, entry: Entry): void {
    if (address.family === 4) add(listsOf(this.#ranges4, prefix), address.value, entry);
    else add(listsOf(this.#ranges6, prefix), address.value, entry);
  }

  /** The index of the first rule that matches, or infinity. */
  byName(name: string, { protocol, port }: Destination): number {
    let first = firstOf(this.#names.get(name), protocol, port);
    if (this.#suffixes.size === 0) return first;
    for (let dot = name.indexOf("."); dot >= 0; dot = name.indexOf(".", dot + 1))
      first = Math.min(first, firstOf(this.#suffixes.get(name.slice(dot + 1)), protocol, port));
    return first;
  }

  /** All rules that may match the name, at some port. */
  indexesFor(name: string): number[] {
    const lists = [this.#names.get(name), this.#any];
    for (let dot = name.indexOf("."); dot >= 0; dot = name.indexOf(".", dot + 1))
      lists.push(this.#suffixes.get(name.slice(dot + 1)));
    return lists.flatMap((entries) => (entries ?? []).map(({ index }) => index));
  }

  byAddress(address: Address, { protocol, port }: Destination): number {
    let first = Number.POSITIVE_INFINITY;
    if (address.family === 4)
      for (const [prefix, lists] of this.#ranges4)
        first = Math.min(first, firstOf(lists.get(mask4(address.value, prefix)), protocol, port));
    else
      for (const [prefix, lists] of this.#ranges6)
        first = Math.min(first, firstOf(lists.get(mask6(address.value, prefix)), protocol, port));
    return first;
  }

  /** `allow *` is for public addresses only, `deny *` for all. */
  byAny({ protocol, port }: Destination, isPublic: boolean): number {
    return firstOf(isPublic ? this.#any : this.#denyAny, protocol, port);
  }
}

function matcher(protocol: Protocol | undefined, ports: readonly PortRange[] | undefined): Entry["matches"] {
  return (given, port) =>
    (protocol === undefined || protocol === given) &&
    (ports === undefined || ports.some(([first, last]) => first <= port && port <= last));
}

function firstOf(entries: readonly Entry[] | undefined, protocol: Protocol, port: number): number {
  const found = entries?.find((entry) => entry.matches(protocol, port));
  return found?.index ?? Number.POSITIVE_INFINITY;
}

function add<K>(lists: Lists<K>, key: K, entry: Entry): void {
  const list = lists.get(key);
  if (list) list.push(entry);
  else lists.set(key, [entry]);
}

function listsOf<K>(tables: Map<number, Lists<K>>, prefix: number): Lists<K> {
  const known = tables.get(prefix);
  if (known) return known;
  const lists: Lists<K> = new Map();
  tables.set(prefix, lists);
  return lists;
}
