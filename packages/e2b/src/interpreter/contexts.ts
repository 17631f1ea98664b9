/** Contexts of code, which clients name by an id without saying the language. */
import { randomUUID } from "node:crypto";
import { LruMap } from "@forkd/base";
import { advice, AppError, type EvalContext, type Language } from "@forkd/contract";
import { createContext, dropContext, listContexts, restartContext } from "@forkd/runtime";
import type { EnvdCall } from "../envd/call.ts";
import { accountOf, pathOf } from "../envd/call.ts";

type CodeContext = { id: string; language: string; cwd: string };

/** Where code of an execution runs */
type CodeTarget = { readonly language: Language; readonly context: string };

const defaultContext = "default";
const maxKnown = 10_000;

const languages: ReadonlyMap<string, Language> = new Map([
  ["python", "python"],
  ["javascript", "node"],
  ["js", "node"],
]);

/** The interpreter of a language as clients name it; the default is Python. */
export function languageOf(name: string | undefined): Language {
  const language = languages.get(name?.toLowerCase() ?? "python");
  if (language) return language;
  throw new AppError(
    "unsupported",
    `Cannot run "${name}": the interpreters are python, javascript and bash`,
    {
      remedy: advice("Use one of these languages."),
    },
  );
}

function shownLanguage(language: Language): string {
  return language === "node" ? "javascript" : language;
}

export class CodeContexts {
  /** Contexts that were seen, so that an execution need not ask for all of them first. */
  readonly #known = new LruMap<string, CodeTarget>(maxKnown);

  async list(call: EnvdCall): Promise<CodeContext[]> {
    const all = await listContexts(call.runtime, { id: call.id }, call.context);
    return all.map((each) => this.#shown(call, each));
  }

  async create(
    call: EnvdCall,
    asked: { language?: string | undefined; cwd?: string | undefined },
  ): Promise<CodeContext> {
    if (asked.language?.toLowerCase() === "bash")
      throw new AppError("unsupported", "Cannot make a context of bash: each execution is its own shell");
    const language = languageOf(asked.language);
    const cwd = asked.cwd ? pathOf(call, await accountOf(call), asked.cwd) : undefined;
    const made = await createContext(
      call.runtime,
      { id: call.id, name: randomUUID(), language, env: {}, ...(cwd && { cwd }) },
      call.context,
    );
    return this.#shown(call, made);
  }

  async restart(call: EnvdCall, id: string): Promise<void> {
    const { language, context: name } = await this.find(call, id);
    await restartContext(call.runtime, { id: call.id, name, language }, call.context);
  }

  async remove(call: EnvdCall, id: string): Promise<void> {
    const { language, context: name } = await this.find(call, id);
    await dropContext(call.runtime, { id: call.id, name, language }, call.context);
    this.#known.delete(keyOf(call, id));
  }

  /** Throws `not_found` if there is no such context. */
  async find(call: EnvdCall, id: string): Promise<CodeTarget> {
    const known = this.#known.get(keyOf(call, id));
    if (known) return known;
    await this.list(call);
    const found = this.#known.get(keyOf(call, id));
    if (found) return found;
    throw new AppError("not_found", `Context ${id} not found`, { details: { context: id } });
  }

  #shown(call: EnvdCall, { name, language, cwd }: EvalContext): CodeContext {
    const id = name === defaultContext ? `${shownLanguage(language)}-${name}` : name;
    this.#known.set(keyOf(call, id), { language, context: name });
    return { id, language: shownLanguage(language), cwd: cwd ?? "/" };
  }
}

function keyOf({ id: sandbox }: EnvdCall, id: string): string {
  return `${sandbox} ${id}`;
}

export function defaultTarget(language: Language): CodeTarget {
  return { language, context: defaultContext };
}
