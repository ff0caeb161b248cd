// SPDX-License-Identifier: MIT

import Companion
import Testing
import Timing

@Suite struct FrameStreamTests {
  private let now = MonotonicTime(seconds: 1)

  private func frames(_ chunks: [[UInt8]]) -> (frames: [[UInt8]], fault: FrameStream.Fault?) {
    var stream = FrameStream(.toRadio)
    var found: [[UInt8]] = []
    for chunk in chunks {
      stream.append(chunk, now: now)
      while let frame = stream.next(now: now) { found.append(frame) }
    }
    return (found, stream.fault)
  }

  @Test func `frames are read whole, however the stream is cut`() {
    let bytes = SerialFraming.wrap([5], .toRadio) + SerialFraming.wrap([0xFE, 1, 2], .toRadio)
    #expect(frames([bytes]) == ([[5], [0xFE, 1, 2]], nil))
    #expect(frames(bytes.map { [$0] }) == ([[5], [0xFE, 1, 2]], nil))
  }

  @Test func `a byte that begins no frame ends the stream, and later frames are ignored`() {
    let frame = SerialFraming.wrap([5], .toRadio)
    let post = Array("POST / HTTP/1.1\r\nHost: 127.0.0.1:5000\r\nContent-Length: 4\r\n\r\n".utf8)
    #expect(frames([post + frame]) == ([], .noMarker(UInt8(ascii: "P"))))
    #expect(frames([post, frame]) == ([], .noMarker(UInt8(ascii: "P"))))
    #expect(frames([frame + [0] + frame]) == ([[5]], .noMarker(0)))
    #expect(frames([[0x3C, 0, 0] + frame]) == ([], .length(0)))
    #expect(frames([[0x3C, 0, 1] + frame]) == ([], .length(256)))
    #expect(frames([SerialFraming.wrap([5], .fromRadio)]) == ([], .noMarker(0x3E)))
  }

  @Test func `an incomplete frame ends the stream at its time limit`() throws {
    var stream = FrameStream(.toRadio)
    stream.append([0x3C, 5], now: now)
    #expect(stream.next(now: now) == nil)
    let deadline = try #require(stream.deadline)
    stream.timedOut(now: deadline + .seconds(-1))
    #expect(stream.fault == nil)
    stream.timedOut(now: deadline)
    #expect(stream.fault == .unfinished && stream.deadline == nil)
  }
}
