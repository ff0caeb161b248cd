// SPDX-License-Identifier: MIT

import Companion
import MeshCoreFixtures
import Testing
import Timing

@Suite struct SerialDecoderTests {
  private func decode(_ bytes: [UInt8], chunk: Int) -> [String] {
    var decoder = SerialDecoder(.fromRadio)
    var frames: [String] = []
    var now = MonotonicTime(seconds: 0)
    func drain(_ decoder: inout SerialDecoder) {
      while let frame = decoder.next(now: now) { frames.append(Hex.string(frame)) }
    }
    var position = 0
    while position < bytes.count {
      decoder.append(bytes[position..<min(position + chunk, bytes.count)], now: now)
      drain(&decoder)
      position += chunk
    }
    while let deadline = decoder.deadline {
      now = deadline
      decoder.timedOut(now: now)
      drain(&decoder)
    }
    return frames
  }

  @Test(arguments: Fixtures.section("serial_streams").indices, [1, 2, 3, 7, 4096])
  func `a stream gives the same frames, however it is cut`(_ index: Int, _ chunk: Int) {
    let stream = Fixtures.section("serial_streams")[index]
    let wanted = stream["frames"] as! [String]
    #expect(decode(Hex.bytes(stream["hex"] as! String)!, chunk: chunk) == wanted, "\(stream["name"]!)")
  }

  @Test func `an incomplete frame is dropped at its time limit, not before`() {
    var decoder = SerialDecoder(.fromRadio)
    let start = MonotonicTime(seconds: 10)
    decoder.append([0x3E, 0x05, 0x00, 0x09, 0x01], now: start)
    #expect(decoder.next(now: start) == nil)
    #expect(decoder.deadline == start + .seconds(1))
    decoder.timedOut(now: start + .milliseconds(999))
    decoder.append([0x02, 0x03, 0x04], now: start + .milliseconds(999))
    #expect(decoder.next(now: start + .milliseconds(999)) == [0x09, 1, 2, 3, 4])
    #expect(decoder.deadline == nil)
  }

  @Test func `a stream that loses nothing waits longer for the rest of a frame`() {
    var decoder = SerialDecoder(.fromRadio, limit: .seconds(30))
    let start = MonotonicTime(seconds: 10)
    decoder.append([0x3E, 0x05, 0x00, 0x09, 0x01], now: start)
    #expect(decoder.next(now: start) == nil && decoder.deadline == start + .seconds(30))
    decoder.timedOut(now: start + .seconds(29))
    decoder.append([0x02, 0x03, 0x04], now: start + .seconds(29))
    #expect(decoder.next(now: start + .seconds(29)) == [0x09, 1, 2, 3, 4])
  }

  @Test func `a wrapped frame decodes to itself in both directions`() {
    for direction in [FrameDirection.toRadio, .fromRadio] {
      var decoder = SerialDecoder(direction)
      decoder.append(SerialFraming.wrap([0x0A], direction), now: .init(nanoseconds: 0))
      #expect(decoder.next(now: .init(nanoseconds: 0)) == [0x0A])
    }
  }

  @Test func `a masked frame contains no secret`() {
    let secret = [UInt8](repeating: 0xAB, count: 16)
    let channel = Channel(slot: 1, name: "x", secret: ChannelSecret(bytes: secret)!)
    #expect(!SecretMask.hex(Reply.channelInfo(channel).encode(), .fromRadio).contains("ab"))
    #expect(!SecretMask.hex(Command.setChannel(channel).encode(), .toRadio).contains("ab"))
    let key = PublicKey(bytes: [UInt8](repeating: 1, count: 32))!
    let login = Command.sendLogin(key, password: "hunter2").encode()
    #expect(!SecretMask.hex(login, .toRadio).contains(Hex.string("hunter2".utf8)))
  }
}
