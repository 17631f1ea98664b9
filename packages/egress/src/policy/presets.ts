/** Sets of rules for usual destinations. */
import { advice, AppError } from "@forkd/contract";
import type { RuleText } from "../types.ts";
import { formatRule, parseRule, type Rule } from "./rule.ts";

export type Presets = Readonly<Record<string, readonly RuleText[]>>;

export const builtInPresets: Presets = {
  debian: [
    "allow deb.debian.org:80,443",
    "allow security.debian.org:80,443",
    "allow ftp.debian.org:80,443",
    "allow snapshot.debian.org:80,443",
  ],
  pypi: ["allow pypi.org:443", "allow files.pythonhosted.org:443"],
  npm: ["allow *.npmjs.org:443", "allow *.yarnpkg.com:443"],
  github: [
    "allow github.com:22,80,443",
    "allow api.github.com:443",
    "allow codeload.github.com:443",
    "allow uploads.github.com:443",
    "allow ssh.github.com:443",
    "allow *.githubusercontent.com:443",
    "allow ghcr.io:443",
  ],
  huggingface: ["allow huggingface.co:443", "allow *.huggingface.co:443", "allow *.hf.co:443"],
  "llm-apis": [
    "allow api.anthropic.com:443",
    "allow api.openai.com:443",
    "allow generativelanguage.googleapis.com:443",
    "allow api.mistral.ai:443",
    "allow api.cohere.com:443",
    "allow api.deepseek.com:443",
    "allow api.groq.com:443",
    "allow api.together.xyz:443",
    "allow api.x.ai:443",
    "allow openrouter.ai:443",
  ],
};

/** A rule and the text that it came from. */
export type SourcedRule = { readonly rule: Rule; readonly text: RuleText };

/**
 * Parses rules and replaces presets by their rules, with the action of the rule that names the preset. Throws
 * AppError invalid_request.
 */
export function parseRules(texts: readonly RuleText[], presets: Presets = builtInPresets): SourcedRule[] {
  return texts.flatMap((text) => {
    const rule = parseRule(text);
    if (rule.target.kind !== "preset") return [{ rule, text: formatRule(rule) }];
    return presetRules(rule.target.preset, presets).map((inner) => {
      const own = { ...inner, action: rule.action };
      return { rule: own, text: formatRule(own) };
    });
  });
}

/** The rules as texts without presets, for a proxy that does not know the presets of this installation. */
export function expandPresets(texts: readonly RuleText[], presets: Presets): RuleText[] {
  return parseRules(texts, presets).map(({ text }) => text);
}

function presetRules(name: string, presets: Presets): Rule[] {
  const texts = Object.hasOwn(presets, name) ? presets[name] : undefined;
  if (!texts)
    throw new AppError("invalid_request", `There is no preset "${name}"`, {
      details: { preset: name },
      remedy: advice(`Use one of: ${Object.keys(presets).toSorted().join(", ")}`),
    });
  return texts.map((text) => {
    const rule = parseRule(text);
    if (rule.target.kind === "preset")
      throw new AppError("invalid_request", `Preset "${name}" names another preset: "${text}"`, {
        remedy: advice("Write the rules of the other preset instead"),
      });
    return rule;
  });
}
