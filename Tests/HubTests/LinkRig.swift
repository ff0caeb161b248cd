// SPDX-License-Identifier: MIT

import Foundation
import JSON
import TestSupport
import Testing

@testable import Hub

/// The hub's end of a link without sockets: gets a gateway's messages, and returns the answers.
final class LinkRig {
  private let scratch = Scratch(inMemory: true)
  private var file: String { scratch.location("hub.db") }
  private(set) var stores: HubStores
  var store: HubStore { stores.writer }
  private var session: LinkSession
  private var liveness = LinkSession.Liveness()
  private var number: Int64 = 0

  private let limiter: RateLimiter

  init(bytesPerDay: Int64 = 0) throws {
    limiter = RateLimiter(perSecond: 0, bytesPerDay: bytesPerDay)
    stores = try HubStores(location: scratch.location("hub.db"))
    session = Self.session(stores, limiter)
  }

  private static func session(_ stores: HubStores, _ limiter: RateLimiter) -> LinkSession {
    LinkSession(
      gateway: "g", stores: stores, registry: LinkRegistry(), limiter: limiter, maxMessage: 1 << 20,
      compression: nil, isAllowed: { true })
  }

  /// Sends a message without an answer.
  func tell(_ text: String) async throws {
    let message = try JSONValue(parsing: text)
    #expect(try await session.answer(message["type"]?.string ?? "", message, Array(text.utf8), liveness) == nil)
  }

  func say(_ text: String) async throws -> JSONValue {
    let message = try JSONValue(parsing: text)
    let answer = try await session.answer(message["type"]?.string ?? "", message, Array(text.utf8), liveness)
    return try JSONValue(parsing: #require(answer))
  }

  /// Opens a link of a gateway with this version; 0: the gateway does not name one.
  func hello(version: Int, epoch: String = "e") async throws -> JSONValue {
    liveness = LinkSession.Liveness()
    number = 0
    let spoken = version > 0 ? #""protocol":\#(version),"# : ""
    return try await say(#"{"type":"hello",\#(spoken)"gateway":"g","epoch":"\#(epoch)"}"#)
  }

  /// Sends one batch; `lane` as in JSON, including quotes.
  func ship(_ events: [String], lane: String? = nil, after: Int64? = nil) async throws -> JSONValue {
    number += 1
    let answer = try await say(
      #"{"type":"events","n":\#(number)\#(lane.map { #","lane":\#($0)"# } ?? "")\#(after.map { #","after":\#($0)"# } ?? "")"#
        + #","events":[\#(events.joined(separator: ","))]}"#)
    #expect(answer["n"]?.integer == number)
    return answer
  }

  static func event(_ seq: Int64, _ kind: String, _ body: String = "{}") -> String {
    #"{"seq":\#(seq),"at":\#(seq),"trusted":true,"kind":"\#(kind)","body":\#(body)}"#
  }

  var lanes: [String: Int64] {
    get async throws {
      let progress = try await store.progress(gateway: "g", epoch: "e")
      return Dictionary(uniqueKeysWithValues: (progress?.lanes ?? [:]).map { ($0.key.rawValue, $0.value) })
    }
  }

  // MARK: Backups

  /// Replaces the backup by the hub's present database.
  func backUp() throws { try closed { try copy(file, to: backup) } }

  /// Restores the hub's database from the last backup.
  func restore() throws { try closed { try copy(backup, to: file) } }

  private var backup: String { scratch.location("backup.db") }

  private func copy(_ from: String, to: String) throws {
    if FileManager.default.fileExists(atPath: to) { try FileManager.default.removeItem(atPath: to) }
    try FileManager.default.copyItem(atPath: from, toPath: to)
  }

  private func closed(_ work: () throws -> Void) throws {
    stores = try HubStores(location: scratch.location("other.db"))
    session = Self.session(stores, limiter)
    // Connections end after their last work.
    for _ in 0..<1000 where FileManager.default.fileExists(atPath: file + "-wal") { usleep(10_000) }
    try #require(!FileManager.default.fileExists(atPath: file + "-wal"), "all of it is in the file")
    try work()
    stores = try HubStores(location: file)
    session = Self.session(stores, limiter)
  }
}
