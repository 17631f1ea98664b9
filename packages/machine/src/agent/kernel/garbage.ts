/** The kernel sent bytes that are not a valid message. */
export class KernelGarbage extends Error {
  override readonly name = "KernelGarbage";
}
