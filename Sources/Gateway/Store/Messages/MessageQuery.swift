// SPDX-License-Identifier: MIT

import Companion
import UntrustedText

/// Criteria for messages. An omitted criterion matches everything.
public struct MessageQuery: Equatable, Sendable {
  /// Words, each in the text or in the sender's name: `storm battery`; `"at the ridge"` for a phrase, `batter*` for a
  /// prefix, `-test` for a word that must be in neither.
  public var words: String?
  /// Sent by this node; in a room, posted by it; on a channel, under its name.
  public var from: Contact?
  /// On this channel.
  public var channel: ChannelSecret?
  /// Time of arrival in milliseconds since 1970; both ends included.
  public var since: Int64?
  public var until: Int64?
  /// Messages between these positions, both excluded.
  public var after: MessagePlace
  public var before: MessagePlace
  /// The radio that received or sent the message; `nil`: any. A message of several radios matches each of them.
  public var radio: Int64?
  /// The conversation with this node: messages that it sent directly or forwarded as a room, and messages to it.
  public var with: Contact?
  /// Messages of this conversation, whether or not its node or channel is still known.
  public var conversation: ConversationName?
  public var directions: Directions = .received

  /// The directions of messages.
  public struct Directions: OptionSet, Sendable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    public static let received = Directions(rawValue: 1)
    public static let sent = Directions(rawValue: 2)
    public static let both: Directions = [.received, .sent]
  }

  public init(
    words: String? = nil, from: Contact? = nil, channel: ChannelSecret? = nil, since: Int64? = nil,
    until: Int64? = nil, after: MessagePlace = .first, before: MessagePlace = .last, radio: Int64? = nil
  ) {
    self.words = words
    self.from = from
    self.channel = channel
    self.since = since
    self.until = until
    self.after = after
    self.before = before
    self.radio = radio
  }

  /// Whether the query needs the search index.
  public var usesIndex: Bool { words != nil || from != nil || with != nil || channel != nil || conversation != nil }

  /// Why a search for these words is not possible.
  public enum WordsError: Error, Equatable, Sendable, CustomStringConvertible {
    case nothingToFind
    case tooShort(String)
    case tooMany

    public var description: String {
      switch self {
      case .nothingToFind: "no search word: expected letters and digits, and not only after `-`"
      case .tooShort(let word):
        "\"\(word)*\" is too short: a prefix must have at least \(MessageQuery.shortestBeginning) letters"
      case .tooMany: "more than \(MessageQuery.maxWords) words"
      }
    }
  }

  /// Shorter prefixes match so many words that the search takes too long: the index joins the messages of all of them
  /// before it finds the first. With 100,000 messages, each part of a query takes 9 ms for the most frequent prefix of
  /// three letters, 15 ms for two, 37 ms for one (on a desktop computer), and 0.2 ms for a whole word.
  static let shortestBeginning = 3
  static let maxWords = 32

  /// The words in the syntax of the index, each in one of these columns; `nil`: there are none.
  private func wordsExpression(_ columns: String) throws(WordsError) -> (wanted: String, unwanted: String?)? {
    guard let words else { return nil }
    var (wanted, unwanted): ([String], [String]) = ([], [])
    let terms = Self.terms(words)
    guard terms.count <= Self.maxWords else { throw .tooMany }
    for term in terms {
      if term.isUnwanted { unwanted.append(try term.quoted()) } else { wanted.append(try term.quoted()) }
    }
    guard !wanted.isEmpty else { throw .nothingToFind }
    return (
      "\(columns) : (\(wanted.joined(separator: " AND ")))",
      unwanted.isEmpty ? nil : "\(columns) : (\(unwanted.joined(separator: " OR ")))"
    )
  }

  /// The query for the index of sent messages, which has no senders; `nil`: not needed.
  func sentExpression() throws(WordsError) -> String? {
    guard let (wanted, unwanted) = try wordsExpression("text") else { return nil }
    return unwanted.map { "(\(wanted)) NOT \($0)" } ?? wanted
  }

  /// The query for the index of received messages; `nil`: not needed.
  func expression() throws(WordsError) -> String? {
    let words = try wordsExpression("{text sender}")
    var parts = words.map { [$0.wanted] } ?? []
    if let from {
      let key = Hex.string(from.key.bytes)
      var places = ["place : s\(key.prefix(12))", "place : a\(key.prefix(8))"]
      let name = from.name.string
      if name.contains(where: { $0.isLetter || $0.isNumber }) { places.append("sender : \(Self.quote(name))") }
      parts.append("(\(places.joined(separator: " OR ")))")
    }
    if let with { parts.append("place : s\(with.key.prefix.hex)") }
    if let channel { parts.append("place : c\(channel.digest)") }
    if let conversation { parts.append("place : \(conversation.indexWord)") }
    guard !parts.isEmpty else { return nil }
    let all = parts.joined(separator: " AND ")
    return words?.unwanted.map { "(\(all)) NOT \($0)" } ?? all
  }

  private struct Term {
    let text: String
    let isUnwanted: Bool
    let isBeginning: Bool

    func quoted() throws(WordsError) -> String {
      // A letter that is a separate word needs no prefix match.
      let isWhole = text.unicodeScalars.last.map { SearchWords.isUnspaced($0.value) } ?? true
      guard isBeginning, !isWhole else { return MessageQuery.quote(text) }
      guard text.unicodeScalars.count >= MessageQuery.shortestBeginning else { throw .tooShort(text) }
      return MessageQuery.quote(text) + " *"
    }
  }

  private static func quote(_ text: String) -> String {
    // By scalars: a quotation mark with a combining accent is one to the index, too.
    "\"" + SearchWords.spaced(text).pieces(at: "\"").joined(separator: "\"\"") + "\""
  }

  /// Splits the text into words and quoted phrases. Drops punctuation.
  private static func terms(_ words: String) -> [Term] {
    var terms: [Term] = []
    for (place, piece) in words.pieces(at: "\"").enumerated() {
      let isPhrase = place % 2 == 1
      for part in isPhrase ? [piece[...]] : piece.split(whereSeparator: \.isWhitespace) {
        let isUnwanted = !isPhrase && part.begins(with: "-")
        let isBeginning = !isPhrase && part.ends(with: "*")
        let text = String(part.unicodeScalars.dropFirst(isUnwanted ? 1 : 0).dropLast(isBeginning ? 1 : 0))
        guard text.contains(where: { $0.isLetter || $0.isNumber }) else { continue }
        terms.append(Term(text: text, isUnwanted: isUnwanted, isBeginning: isBeginning))
      }
    }
    return terms
  }
}
