/** What is wrong with the content of a layer; the reader adds which layer it is. */
export class LayerFault extends Error {
  override readonly name = "LayerFault";
}
