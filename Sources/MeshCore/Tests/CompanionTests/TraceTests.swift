// SPDX-License-Identifier: MIT

import Companion
import MeshCoreFixtures
import Testing

@Suite struct TraceTests {
  @Test(arguments: Fixtures.traceNames) func `every recorded frame decodes, and sent frames encode to the same bytes`(
    _ name: String
  ) throws {
    let lines = Fixtures.trace(name)
    for (index, line) in lines.enumerated() where !line.isRaw {
      let shown = "\(name): \(line.toRadio ? "tx" : "rx") \(Hex.string(line.bytes))"
      if line.toRadio {
        checkSent(line, answer: answer(in: lines, after: index), shown)
      } else {
        let frame = try #require(try? RadioFrame(decoding: line.bytes), "\(shown)")
        #expect(try RadioFrame(decoding: frame.encode()) == frame, "\(shown)")
      }
    }
  }

  private func answer(in lines: [TraceLine], after index: Int) -> [UInt8]? {
    lines[(index + 1)...].first { !$0.toRadio && $0.bytes[0] < 0x80 }?.bytes
  }

  /// Only commands that the radio itself refused may fail to decode, and those of the scene with short frames.
  private func checkSent(_ line: TraceLine, answer: [UInt8]?, _ shown: String) {
    do {
      let command = try Command(decoding: line.bytes)
      #expect(Hex.string(command.encode()) == Hex.string(line.bytes), "\(shown)")
    } catch {
      let wasRefused = answer?.first == 1 || shown.contains("hazard_short_frames")
      #expect(wasRefused, "\(shown): \(error)")
    }
  }

  @Test func `raw streams of the framing scenes do not trap the decoder`() {
    for name in Fixtures.traceNames {
      var decoder = SerialDecoder(.toRadio)
      for line in Fixtures.trace(name) where line.isRaw && line.toRadio {
        decoder.append(line.bytes, now: .init(nanoseconds: 0))
        while decoder.next(now: .init(nanoseconds: 0)) != nil {}
      }
    }
  }
}
