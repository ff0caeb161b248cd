// SPDX-License-Identifier: MIT

import Companion
import MeshCrypto
import TestSupport
import Testing

@testable import Messaging

/// Answers of real firmware to messages and requests.
@Suite struct FirmwareTraceTests {
  /// Keys of the recorded radios, and of their contacts.
  private static let keys: [PublicKey] = {
    var keys: Set<PublicKey> = []
    for name in Fixtures.traceNames {
      for line in Fixtures.trace(name) where !line.isRaw && !line.toRadio {
        switch try? RadioFrame(decoding: line.bytes) {
        case .reply(.selfInfo(let info)): keys.insert(info.key)
        case .reply(.contact(let contact)): keys.insert(contact.key)
        default: break
        }
      }
    }
    return Array(keys)
  }()

  private static let keyless = ["v1.15.0/dm_through_a_repeater", "v1.17.1/contacts_table_full"]

  @Test func `computed acknowledgements equal those of the firmware`() {
    var (compared, confirmed) = (0, 0)
    for name in Fixtures.traceNames {
      let lines = Fixtures.trace(name).filter { !$0.isRaw }
      var expected: Set<AckCode> = []
      for (index, line) in lines.enumerated() where line.toRadio {
        guard case .sendText(let text)? = try? Command(decoding: line.bytes), text.type == .plain,
          let answer = lines[(index + 1)...].first(where: { !$0.toRadio && $0.bytes[0] < 0x80 }),
          case .reply(.sent(let sent))? = try? RadioFrame(decoding: answer.bytes)
        else { continue }
        expected.insert(sent.ackOrTag)
        // Longer texts were cut on their way to older firmware; and two recordings do not contain their radio's key.
        guard text.text.bytes.count <= TextLimit.direct, !Self.keyless.contains(name) else { continue }
        let codes = Self.keys.map {
          AckCode.expected(time: text.time, attempt: text.attempt, text: text.text.beforeNul, sender: $0)
        }
        let isComputed = codes.contains(sent.ackOrTag)
        #expect(isComputed, "\(name): \(Hex.string(line.bytes)) gave \(sent.ackOrTag)")
        compared += 1
      }
      for line in lines where !line.toRadio {
        guard case .push(.sendConfirmed(let code, _))? = try? RadioFrame(decoding: line.bytes) else { continue }
        #expect(expected.contains(code), "\(name): \(code)")
        confirmed += 1
      }
    }
    #expect(compared == 94 && confirmed == 72, "\(compared) compared, \(confirmed) confirmed")
  }

  private struct Asked {
    let question: NodeQuestion
    let contact: Contact
  }

  private func question(_ command: Command) -> Asked? {
    func asked(_ question: NodeQuestion, _ key: PublicKey) -> Asked {
      Asked(question: question, contact: Contact(key: key, type: .repeater, name: ""))
    }
    switch command {
    case .sendLogin(let key, let password): return asked(.login(password: password), key)
    case .sendStatusRequest(let key): return asked(.status, key)
    case .sendTelemetryRequest(let key?): return asked(.telemetry, key)
    case .sendPathDiscovery(let key): return asked(.path, key)
    case .sendBinaryRequest(let key, let request) where request.type == 6: return asked(.neighbours(first: 0), key)
    case .sendTracePath(let trace):
      guard let nobody = PublicKey(bytes: [UInt8](repeating: 9, count: 32)) else { return nil }
      return asked(.trace(path: trace.path, flags: trace.flags), nobody)
    default: return nil
    }
  }

  /// Answered requests of each trace, by kind, as its notes list them.
  @Test(arguments: [
    ("login_guest", ["login 1/3", "status 1/1"]), ("login_repeater_cli", ["login 1/2", "status 1/2"]),
    ("room_server", ["login 1/1"]), ("trace_path", ["trace 2/4"]), ("path_discovery", ["path 2/2"]),
    ("telemetry", ["login 1/1", "neighbours 1/1", "status 0/1", "telemetry 4/7"]),
  ]) func `answers of repeaters, rooms and companions are matched to their requests`(
    _ name: String, _ expected: [String]
  ) throws {
    let lines = Fixtures.trace("v1.17.1/\(name)").filter { !$0.isRaw }
    var counts: [String: (answered: Int, asked: Int)] = [:]
    var current: (asked: Asked, tag: AckCode?, kind: String)?
    for line in lines {
      if line.toRadio {
        guard let command = try? Command(decoding: line.bytes), let asked = question(command) else { continue }
        let kind = String("\(asked.question)".prefix { $0.isLetter })
        counts[kind, default: (0, 0)].asked += 1
        current = (asked, nil, kind)
        continue
      }
      switch try? RadioFrame(decoding: line.bytes) {
      case .reply(.sent(let sent)) where current?.tag == nil: current?.tag = sent.ackOrTag
      case .push(let push):
        guard let asked = current, let tag = asked.tag,
          asked.asked.question.answer(in: push, from: asked.asked.contact, tag: tag) != nil
        else { continue }
        counts[asked.kind, default: (0, 0)].answered += 1
        current = nil
      default: break
      }
    }
    let told = counts.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value.answered)/\($0.value.asked)" }
    #expect(told == expected)
  }
}
