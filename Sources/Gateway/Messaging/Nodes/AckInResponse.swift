// SPDX-License-Identifier: MIT

import Companion

/// `pymc_core` radios (seen with 1.0.12) report the acknowledgement of a flooded message not as SEND_CONFIRMED, but as the answer to a request that
/// nobody made. It contains the returned path, decrypted:
///
///     path length u8 | path | type u8 (low 4 bits 3: an acknowledgement) | acknowledgement 4
///
/// With this, the first message to a node counts as delivered at once, not after a second attempt. The caller compares the code with those that it
/// waits for, so no other answer counts.
enum AckInResponse {
  static func code(in bytes: [UInt8]) -> AckCode? {
    var reader = FrameReader(bytes)
    // `try?`: bytes without this form are an ordinary answer.
    guard let raw = try? reader.u8("path_len"), let _ = try? Path(reading: &reader, length: PathLength(raw: raw)),
      let type = try? reader.u8("type"), type & 15 == PayloadType.ack.rawValue,
      let code = try? reader.bytes(4, "ack")
    else { return nil }
    return AckCode(bytes: code)
  }
}
