// SPDX-License-Identifier: MIT

import Companion
import ControlShapes
import Documents
import HTTP
import JSON
import Messaging
import Store
import Sync
import UntrustedText

/// `/v1/documents…`: notes about nodes and channels, and settings that can be changed remotely. See docs/documents.md.
struct DocumentAPI {
  let dependencies: ControlAPI.Dependencies

  func edit(_ body: RequestBody) async throws -> Answer { try await edit(try body.string("key"), body) }

  func editNode(_ field: DocumentKey.NodeField, _ body: RequestBody) async throws -> Answer {
    let node = try Addressing(dependencies.store).contact(try body.string("node"))
    return try await edit(DocumentKey.node(key: node.contact.key.hex, field).text, body)
  }

  func editRelay(_ body: RequestBody) async throws -> Answer {
    let channel = try Addressing(dependencies.store).channel(try body.string("channel"))
    return try await edit(DocumentKey.relay(digest: channel.secret.digest).text, body)
  }

  /// Sets `value`; without it, or with null, deletes the document.
  private func edit(_ text: String, _ body: RequestBody) async throws -> Answer {
    // A mistyped value is none, which would delete it.
    try body.hasOnly(["key", "node", "channel", "value"])
    guard let key = DocumentKey(text) else { throw Refusal.invalid(DocumentKey.allowed) }
    let value = body.any("value")
    if let value, !key.allows(value) { throw Refusal.invalid("\"value\" is \(key.wanted)") }
    guard try dependencies.store.hasRoomForDocument(text) else {
      throw Refusal.full("the limit of \(Store.maxDocuments) documents is reached; deleted documents count")
    }
    let moment = dependencies.synchronizer.now
    var edited: Document?
    try await dependencies.store.save { store throws(SQLiteError) in
      edited = try store.editDocument(text, value?.text, at: moment)
    }
    if edited != nil { dependencies.operations.documentsChanged() }
    return .json { json in if let edited { Self.write(edited, to: &json) } }
  }

  private static func write(_ document: Document, to json: inout JSONWriter) {
    let row = Shape.Document()
    json.field(row.key, document.key)
    if let value = document.value { json.field(row.value, json: Array(value.utf8)) }
    json.field(row.updatedAt, document.updatedAt)
    json.field(row.byHub, document.byHub)
  }

  /// Lists documents, at most 1000; with `after` the next ones.
  func list(_ request: HTTPRequest) throws -> Answer {
    let after = request.query["after"] ?? ""
    var found: [Document] = []
    try dependencies.store.eachDocument(request.query["prefix"] ?? "") { document in
      if document.key > after, document.value != nil { found.append(document) }
      return found.count < 1000
    }
    return .json { json in
      json.objects(Shape.Documents().documents, found) { Self.write($0, to: &$1) }
      if found.count == 1000 { json.field(Shape.Documents().next, found.last?.key) }
    }
  }

  /// The alias of the node whose key begins like this; `nil`: none, or several nodes match.
  static func alias(ofKey beginning: String, _ store: Store) -> String? {
    var found: [String] = []
    // If the alias cannot be read, the node's name remains.
    store.ifReadable {
      try store.eachDocument("node/\(beginning)") { document in
        if document.key.ends(with: "/alias"), let value = document.value,
          let alias = (try? JSONValue(parsing: value))?.string  // `try?`: it was JSON when it arrived
        {
          found.append(alias)
        }
        return found.count < 2
      }
    }
    return found.count == 1 ? found[0] : nil
  }

  /// Writes the notes about a node: `alias`, `note`, `tags`.
  static func writeNotes(of key: PublicKey, _ store: Store, to json: inout JSONWriter) {
    // If the notes cannot be read, the node is shown without them.
    store.ifReadable {
      try store.eachDocument("node/\(key.hex)/") { document in
        if let value = document.value, let field = document.key.split(separator: "/").last {
          json.field(String(field), json: Array(value.utf8))
        }
        return true
      }
    }
  }
}
