// Decodes the assignment of a consumer group's member (ConsumerProtocolAssignment).

/** Return the assigned partitions, such as ["orders-0"], or null if the bytes have another format. */
export function partitionsOf(base64) {
  try {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    let at = 2; // After the version.
    const int32 = () => view.getInt32((at += 4) - 4);
    const found = [];
    for (let topics = int32(); topics > 0; topics--) {
      const length = view.getInt16(at);
      const topic = new TextDecoder("utf-8", { fatal: true }).decode(bytes.subarray(at + 2, at + 2 + length));
      at += 2 + length;
      for (let partitions = int32(); partitions > 0; partitions--) found.push(`${topic}-${int32()}`);
    }
    return found;
  } catch {
    return null;
  }
}
