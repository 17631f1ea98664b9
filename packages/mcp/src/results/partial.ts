/** Outputs of one call → sized texts, what is left out, and links to the whole. */
import type { ContentBlock } from "@modelcontextprotocol/server";
import type { Collected } from "./collector.ts";
import { outputUri, type OutputStore } from "./output-store.ts";
import { sized } from "./sized.ts";

type Partial = {
  /** Text of each output by its name. */
  readonly texts: Readonly<Record<string, string>>;
  /** Fields of the answer that name what is left out or replaced; empty if nothing is. */
  readonly fields: {
    left_out_bytes?: Record<string, number>;
    whole?: Record<string, string>;
    replaced_characters?: number;
  };
  readonly links: readonly ContentBlock[];
};

/** `of` says whose outputs they are, for the names of the resources. */
export function partialOutputs(
  outputs: Readonly<Record<string, Collected>>,
  how: { store: OutputStore; limit: number; of: string },
): Partial {
  const texts: Record<string, string> = {};
  const leftOut: Record<string, number> = {};
  const whole: Record<string, string> = {};
  const links: ContentBlock[] = [];
  let replaced = 0;
  for (const [name, output] of Object.entries(outputs)) {
    const uri = output.total > how.limit ? how.store.add(`${name} of ${how.of}`, output) : undefined;
    const shown = sized(output, how.limit, whereIs(uri, output));
    texts[name] = shown.text;
    replaced += shown.replaced;
    if (uri === undefined) continue;
    leftOut[name] = shown.leftOut;
    whole[name] = uri;
    links.push({
      type: "resource_link",
      uri,
      name: `${name} of ${how.of}`,
      description: `All ${output.total} bytes, for one hour${output.missing > 0 ? `, without ${output.missing} bytes in the middle` : ""}`,
      mimeType: "text/plain",
      size: output.total - output.missing,
    });
  }
  const isCut = links.length > 0;
  return {
    texts,
    links,
    fields: {
      ...(isCut && { left_out_bytes: leftOut, whole }),
      ...(replaced > 0 && { replaced_characters: replaced }),
    },
  };
}

function whereIs(uri: string | undefined, { missing }: Collected): string {
  if (uri === undefined) return "";
  const lost = missing > 0 ? ` ${missing} of them are not kept.` : "";
  return `Call read_output with uri "${uri}" to read them.${lost}`;
}

/** The id in the address of a stored output. */
export function outputIdOf(uri: string): string | undefined {
  const id = uri.startsWith(outputUri("")) ? uri.slice(outputUri("").length) : "";
  return /^[0-9a-f]{24}$/.test(id) ? id : undefined;
}
