// SPDX-License-Identifier: MIT

import Companion
import Delivery
import EventLoop
import Timing

/// Asks which nodes are in direct range: one packet, which every repeater and sensor that hears it answers by itself, after a random delay.
///
/// It needs no login and no contact. Repeaters answer four times in two minutes at most, and those that do not repeat never. Source:
/// docs/protocol/companion.md § 9.10; firmware `MyMesh.cpp`, `onControlDataRecv`.
public final class RadioSurvey {
  public struct Found: Equatable, Sendable {
    /// Its whole key, or the first 8 bytes.
    public var key: [UInt8]
    public var type: NodeType
    /// At which this radio hears the node, and at which the node has heard this radio.
    public var snr: SNR
    public var rssi: Int8
    public var snrThere: SNR
  }

  private static let types: [NodeType] = [.chat, .repeater, .room, .sensor]

  /// The type of this name, as people give it.
  public static func nodeType(named word: String) throws(Refusal) -> NodeType {
    if let type = types.first(where: { $0.name == word }) { return type }
    throw .invalid("\"\(word)\" is not a type: expected chat, repeater, room or sensor")
  }

  public static let longest: Duration = .seconds(60)
  /// Answers that are kept; further ones are not.
  private static let mostFound = 64
  private static let bytesOnAir = 2 + 6

  private let messenger: Messenger
  private var tag: UInt32?
  private var found: [Found] = []

  public init(_ messenger: Messenger) { self.messenger = messenger }

  /// Asks, and listens so long. Answers with the nodes, the one that hears this radio best first.
  public func run(_ types: [NodeType], for time: Duration) async throws(Refusal) -> [Found] {
    guard tag == nil else { throw .full("a survey is going on; try again in a minute") }
    let tag = UInt32.random(in: 1 ... .max)
    (self.tag, found) = (tag, [])
    defer { (self.tag, found) = (nil, []) }
    let filter = types.reduce(UInt8(0)) { $0 | 1 << ($1.rawValue & 7) }
    let request = ControlPayload.discoverRequest(prefixOnly: false, typeFilter: filter, tag: tag, since: nil)
    try await messenger.sendAtOnce(
      .sendControlData(request.encode()), bytes: Self.bytesOnAir, for: .request,
      unsupported: "the radio's firmware cannot ask for nodes in range: that needs 1.10")
    do { try await messenger.loop.sleep(for: min(max(time, .seconds(1)), Self.longest)) } catch { throw .cancelled }
    return found.sorted { ($0.snrThere.quarters, $0.snr.quarters) > ($1.snrThere.quarters, $1.snr.quarters) }
  }

  public func received(_ push: Push) {
    guard let tag, case .controlData(let snr, let rssi, _, let payload) = push,
      // `try?`: other control data is no answer.
      case .discoverResponse(let type, let snrThere, tag, let key)? = try? ControlPayload(decoding: payload),
      found.count < Self.mostFound, !found.contains(where: { $0.key == key })
    else { return }
    found.append(Found(key: key, type: type, snr: snr, rssi: rssi, snrThere: snrThere))
  }
}
