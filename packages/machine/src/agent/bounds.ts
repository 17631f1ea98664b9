/**
 * The largest messages that the host accepts from a guest. A guest is not trusted, so the host checks each
 * bound before it decodes or parses anything, whatever the agent and the kernels in the guest promise.
 *
 * Every message type has a bound in bytes. Messages that become many objects also have a bound on their
 * number, and JSON one on its depth.
 */

const kib = 1024;
const mib = 1024 * kib;

/** Frames of the agent. */
export const frameBounds = {
  /** payload of any frame; larger output comes in more frames, as far as its credit allows */
  payloadBytes: 64 * kib,
  /** HELLO_OK, which is searched for in bytes of earlier connections */
  helloOkBytes: 1024,
  /** fields in one payload */
  fields: 64,
  /** label, command, version and error text; the rest is cut off */
  textBytes: 512,
  /** LISTING frames in one answer: more than the agent's limits for unfinished and finished processes */
  listings: 2048,
} as const;

/** Messages of a kernel. The header is the type and the length of the payload. */
export const kernelBounds = {
  /** payload of any message, in both directions */
  messageBytes: 16 * mib,
  /** O: all forms of one result, all results of one eval */
  displayBytes: 4 * mib,
  displaysBytes: 8 * mib,
  displays: 200,
  /** Y; the text of the version is cut off further */
  readyBytes: 4 * kib,
  readyTextBytes: 256,
  /** V: printed form or traceback, and JSON */
  valueTextBytes: 4 * mib,
  valueJsonBytes: 4 * mib,
  /** V: length of the whole text, if it was cut */
  valueWholeBytes: 8,
  /** V: number of the eval, number of results left out */
  valueCountBytes: 8,
  /** a deeper value is passed on without its JSON form, which counts as cut */
  valueJsonDepth: 1000,
  /** the JSON of an error: an object with a name, a value and frames of four fields */
  errorJsonBytes: mib,
  errorJsonDepth: 3,
  errorJsonValues: 4 + 100 * 5,
  errorFrames: 100,
  /** N: the working directory; C: those of all contexts, after their names */
  cwdBytes: 4 * kib,
  /** A: a larger one is dropped while it arrives, and only its call fails */
  doneBytes: 128 * kib,
  contexts: 1000,
  /** Z; the text is cut off further */
  cannotBytes: 128 * kib,
  cannotTextBytes: 4 * kib,
} as const;

/** Records of files. */
export const fileBounds = {
  /** one listing */
  entries: 100_000,
  listingBytes: 16 * mib,
  /** `NAME_MAX` is 255; some file systems count it in characters */
  nameBytes: 1024,
  /** `PATH_MAX`: path of a file, target of a link */
  pathBytes: 4096,
  /** name of a user or group */
  ownerBytes: 64,
} as const;
