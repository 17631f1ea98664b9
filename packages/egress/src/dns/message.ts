/** DNS messages from a guest and the answers to them. Only what a stub resolver asks: one question of class IN. */
import { decode, encode, type Answer, type Packet, type Question } from "dns-packet";

/** of a query, by UDP or TCP */
export const maxQueryBytes = 4096;
const headerBytes = 12;

export type Query = {
  readonly id: number;
  readonly question: Question;
  readonly isRecursionDesired: boolean;
  /** the client understands EDNS */
  readonly hasOptions: boolean;
};

type ResponseCode = "NOERROR" | "FORMERR" | "SERVFAIL" | "NXDOMAIN" | "NOTIMP" | "REFUSED";

/** Values of RFC 1035 */
const codes: Record<ResponseCode, number> = {
  NOERROR: 0,
  FORMERR: 1,
  SERVFAIL: 2,
  NXDOMAIN: 3,
  NOTIMP: 4,
  REFUSED: 5,
};

const flags = { response: 1 << 15, recursionDesired: 1 << 8, recursionAvailable: 1 << 7 };

/** The query, the code of an error to answer with, or undefined: then nothing is answered. */
export function readQuery(bytes: Buffer): Query | { id: number; error: ResponseCode } | undefined {
  if (bytes.length < headerBytes || bytes.length > maxQueryBytes) return undefined;
  const id = bytes.readUInt16BE(0);
  const bits = bytes.readUInt16BE(2);
  // Never answer an answer: two servers could do that for ever.
  if ((bits & flags.response) !== 0) return undefined;
  if (((bits >> 11) & 0xf) !== 0) return { id, error: "NOTIMP" };
  const [questions, answers, authorities, additionals] = [4, 6, 8, 10].map((at) => bytes.readUInt16BE(at));
  if (questions !== 1 || answers !== 0 || authorities !== 0 || (additionals ?? 0) > 2)
    return { id, error: "FORMERR" };
  let packet: Packet;
  try {
    packet = decode(bytes);
  } catch {
    return { id, error: "FORMERR" };
  }
  const question = packet.questions?.[0];
  if (!question || (question.class ?? "IN") !== "IN") return { id, error: "REFUSED" };
  return {
    id,
    question,
    isRecursionDesired: (bits & flags.recursionDesired) !== 0,
    hasOptions: packet.additionals?.some(({ type }) => type === "OPT") === true,
  };
}

/** `address`: the one A record, if any. */
export function writeAnswer(
  query: Query,
  code: ResponseCode,
  record?: { address: string; ttlSeconds: number },
): Buffer {
  const { id, question, isRecursionDesired, hasOptions } = query;
  const answers: Answer[] = record
    ? [{ type: "A", name: question.name, ttl: record.ttlSeconds, data: record.address }]
    : [];
  try {
    return encode({
      id,
      type: "response",
      flags: flags.recursionAvailable | (isRecursionDesired ? flags.recursionDesired : 0) | codes[code],
      questions: [question],
      answers,
      ...(hasOptions && {
        additionals: [
          {
            type: "OPT",
            name: ".",
            udpPayloadSize: 1232,
            extendedRcode: 0,
            ednsVersion: 0,
            flags: 0,
            flag_do: false,
            options: [],
          },
        ],
      }),
    });
  } catch {
    // A name that was decoded need not be one that can be encoded.
    return writeError(id, "FORMERR");
  }
}

/** An answer without a question, for a query that could not be read. */
export function writeError(id: number, code: ResponseCode): Buffer {
  const bytes = Buffer.alloc(headerBytes);
  bytes.writeUInt16BE(id, 0);
  bytes.writeUInt16BE(flags.response | flags.recursionAvailable | codes[code], 2);
  return bytes;
}
