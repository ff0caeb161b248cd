// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Delivery
import MeshCrypto
import Store
import UntrustedText

/// A request to send a message.
public struct SendRequest: Equatable, Sendable {
  /// A name, a unique beginning of one, a key or its beginning, `#channel`, or a channel's name.
  public var to: String
  public var text: Text
  /// Makes the request idempotent: the same key twice is one message. Without one, a key is generated.
  public var key: String?
  /// After this time the message is no longer sent; at least a second. `nil`: the gateway's (`messaging.lifetime_h`).
  public var lifetime: Duration?
  public var priority = DeliveryPriority.interactive
  /// The sender: origins take turns.
  public var origin = SendRequest.controlOrigin
  /// Cuts a text that is too long into numbered parts.
  public var splits = false
  /// The region of this message; `nil`: that of its recipient or channel.
  public var region: RegionChoice?
  /// The number of a received message that this one answers: it goes out in the region in which that was heard, unless
  /// its own, or its recipient or channel, has one.
  public var answers: Int64?

  /// The origin of what people and programs send at the control socket.
  public static let controlOrigin = "control"
  /// Lifetimes that a request may ask for, in seconds.
  public static let lifetimes: ClosedRange<Int64> = 1...30 * 86_400
}

extension SendRequest {
  /// As people send it, with nothing but a text.
  public init(to recipient: String, saying text: Text) { self.init(to: recipient, text: text) }
}

/// Why a request was refused, or failed.
public enum Refusal: Error, Equatable, Sendable, CustomStringConvertible {
  case notFound(Missing)
  /// The radio does not have this channel, but one with a similar name.
  case otherChannel(String, known: String)
  /// Several nodes or channels fit.
  case ambiguous(String, candidates: [String])
  /// The id belongs to another text, or to another recipient or region.
  case otherMessage(String)
  /// A known node that is not in the radio's table.
  case notOnRadio(String)
  /// A node for which the radio's table has no place, because nobody may leave it.
  case noPlace(String)
  /// `over`: bytes beyond the limit.
  case tooLong(over: Int, limit: Int)
  case invalid(String)
  /// The outgoing queue, or the air time, is used up for now.
  case full(String)
  case linkDown
  /// This room lets us read, but ignores our posts.
  case readOnly(String)
  case store(StoreError)
  /// The radio refused.
  case radio(String)
  /// A node did not answer; on the mesh that is the only sign of an error.
  case silence(String)
  /// The link was lost after the radio got the command: nobody knows whether it was carried out.
  case unknown(String)
  /// The caller no longer waits for the result.
  case cancelled

  public var description: String {
    switch self {
    case .otherChannel(let name, let known):
      "no channel \(name); the radio has \(known), a different channel. To use that one, write '\(known)'"
    case .notFound(let thing): thing.description
    case .ambiguous(let name, let candidates):
      "\"\(name)\" is not unique: \(candidates.joined(separator: ", ")). Use more of the name, or the key or digest"
    case .otherMessage(let key):
      "the id \(key) belongs to another message: to another recipient, in another region, or with another text"
    case .notOnRadio(let name):
      "the radio does not have \(name) in its contacts. Add it: meshpost contact add \(Escaping.argument(name))"
    case .noPlace(let name):
      "the radio's contact table is full, and none of its nodes may leave for \(name): all are favourites, may run commands, or are polled, watched, "
        + "logged in to, or of types that are kept; or [contacts] evict is off. Take a mark away (meshpost contact favourite NAME off), or remove a "
        + "node (meshpost contact remove NAME)"
    case .tooLong(let over, let limit):
      "the text is \(over) bytes too long (at most \(limit)). Shorten it, or split it"
    case .invalid(let words), .full(let words), .radio(let words), .silence(let words), .unknown(let words): words
    case .readOnly(let name):
      "\(name) allows only reading: posts will be ignored. Log in with a password that allows posting: meshpost room login \(Escaping.argument(name))"
    case .linkDown: "the radio's link is down, or it is not synced yet; see `meshpost status`"
    case .store(let error): "\(error). \(error.remedy)"
    case .cancelled: "the request was cancelled"
    }
  }

  static let unexpectedAnswer = Refusal.radio("the radio sent an unexpected answer")

  /// The result of `work`; a failure of the store becomes a refusal.
  public static func translating<Value>(_ work: () throws(StoreError) -> Value) throws(Refusal) -> Value {
    do { return try work() } catch { throw .store(error) }
  }

  /// Does `work` in this turn's transaction, and returns when that is on disk.
  static func saving(in store: Store, _ work: Store.Work) async throws(Refusal) {
    if let failure = await store.write(work).failure() { throw .store(failure) }
  }

  /// The refusal as a code for programs.
  public var code: String { kind.rawValue }

  private var kind: RefusalCode {
    switch self {
    case .notFound, .otherChannel: .notFound
    case .ambiguous: .ambiguous
    case .otherMessage: .otherMessage
    case .notOnRadio, .noPlace: .notOnRadio
    case .tooLong: .tooLong
    case .invalid: .invalid
    case .full: .full
    case .linkDown: .linkDown
    case .readOnly: .readOnly
    case .store: .store
    case .radio: .radio
    case .silence, .unknown: .silence
    case .cancelled: .cancelled
    }
  }
}

/// The limits of texts in bytes, and the division of longer ones.
public enum TextLimit {
  /// The firmware takes 160; radios with frames of 172 bytes hand over 156 of them (docs/protocol/companion.md § 6).
  public static let direct = 156
  /// Rooms cut longer posts (docs/protocol/app-conventions.md § 4).
  public static let room = 150
  /// Including the name that the radio prepends, and `": "`; the radio cuts a longer text without notice.
  public static let channelWithName = 160

  public static func channel(ownName: Text?) -> Int { channelWithName - (ownName?.bytes.count ?? 31) - 2 }

  /// Maximum number of parts, to protect the mesh's air time.
  public static let maxParts = 9

  /// Splits a text into parts with numbers (`[1/3] …`), of at most `limit` bytes each; a part ends at a blank if one is near, and never inside a
  /// character. `nil`: there would be more than `maxParts`.
  public static func split(_ text: Text, limit: Int) -> [Text]? {
    guard text.bytes.count > limit else { return [text] }
    let room = limit - "[1/9] ".utf8.count
    guard room >= 16 else { return nil }
    var parts: [[UInt8]] = []
    var rest = text.bytes[...]
    while !rest.isEmpty {
      guard parts.count < maxParts else { return nil }
      let end = rest.count <= room ? rest.endIndex : cut(rest, room)
      parts.append(Array(rest[..<end]))
      rest = rest[end...].drop { $0 == 0x20 }
    }
    return parts.enumerated().map { Text(bytes: Array("[\($0.offset + 1)/\(parts.count)] ".utf8) + $0.element) }
  }

  private static func cut(_ bytes: ArraySlice<UInt8>, _ room: Int) -> Int {
    var end = bytes.startIndex + room
    // A part does not end inside a UTF-8 sequence, if the text is UTF-8.
    for _ in 0..<3 where end > bytes.startIndex && bytes[end] & 0xC0 == 0x80 { end -= 1 }
    let blank = bytes[..<end].lastIndex(of: 0x20)
    if let blank, blank > bytes.startIndex + room / 2 { return blank }
    return end > bytes.startIndex ? end : bytes.startIndex + room
  }
}
