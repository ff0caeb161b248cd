// SPDX-License-Identifier: MIT

import Companion

/// `pymc_core` radios (1.0.12, seen) tell the acknowledgement of a flooded message not as SEND_CONFIRMED but as the
/// answer to a request that nobody made: what they hand over is the path that came back, decrypted:
///
///     path length u8 | path | type u8 (low 4 bits 3: an acknowledgement) | acknowledgement 4
///
/// Read as that, the first message to a node counts as delivered when it is, not after a second attempt. Nothing else
/// is taken for one: the caller compares the code with those that it waits for.
enum AckInResponse {
  static func code(in bytes: [UInt8]) -> AckCode? {
    var reader = FrameReader(bytes)
    // `try?`: what does not read so is an ordinary answer.
    guard let raw = try? reader.u8("path_len"), let _ = try? Path(reading: &reader, length: PathLength(raw: raw)),
      let type = try? reader.u8("type"), type & 15 == PayloadType.ack.rawValue,
      let code = try? reader.bytes(4, "ack")
    else { return nil }
    return AckCode(bytes: code)
  }
}
