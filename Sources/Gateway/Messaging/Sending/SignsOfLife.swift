// SPDX-License-Identifier: MIT

import Companion
import Delivery
import Store

/// Signs that the recipients of held messages receive again. Companions do not advertise by themselves, so each packet counts.
extension Messenger {
  /// A push of the radio says that a node was heard.
  func noteSign(in push: Push) {
    guard session.hasAbsentees else { return }
    switch push {
    case .advert(let key), .pathUpdated(let key): heard(key)
    case .newAdvert(let contact): heard(contact.key)
    case .loginSuccess(let login): heard(login.prefix)
    case .loginFail(let prefix), .statusResponse(let prefix, _), .telemetryResponse(let prefix, _): heard(prefix)
    case .pathDiscoveryResponse(let found): heard(found.prefix)
    case .logRxData(_, _, let packet): noteSender(of: packet)
    default: break
    }
  }

  /// A message was received. Everybody may use a name on a channel.
  public func messageCame(_ message: QueuedMessage) {
    guard session.hasAbsentees else { return }
    switch message {
    case .contact(let message): heard(message.sender)
    case .channel(let message):
      for key in session.absentees {
        // An unreadable store gives no hint.
        guard let name = (store.ifReadable { try store.contact(key) })?.contact.name, !name.bytes.isEmpty,
          message.text.bytes.starts(with: name.bytes + Array(": ".utf8))
        else { continue }
        heard(key, .hint)
      }
    case .datagram: break
    }
  }

  /// A packet names its sender with one byte, or with the whole key.
  private func noteSender(of packet: [UInt8]) {
    // `try?`: bytes that are no packet have no sender.
    guard let content = try? Packet(decoding: packet).content() else { return }
    switch content {
    case .request(let envelope), .response(let envelope), .text(let envelope), .path(let envelope):
      // A repeater repeats what we have sent.
      guard envelope.source != synchronizer.connection.identity?.info.key.bytes.first else { return }
      for key in session.absentees where key.bytes.first == envelope.source { heard(key, .hint) }
    case .anonymousRequest(_, let sender, _, _): heard(sender, .hint)
    // The radio reports an advert only if its time has grown. Nobody has checked this one's signature.
    case .advert(let advert): heard(advert.key, .hint)
    case .ack(let code, _): decide { $0.overheard(code, now: $1) }
    default: break
    }
  }

  func heard(_ key: PublicKey, _ sign: SignOfLife = .certain) { decide { $0.heard(key, sign, now: $1) } }

  private func heard(_ prefix: KeyPrefix) {
    for key in session.absentees where key.prefix == prefix { heard(key) }
  }
}
