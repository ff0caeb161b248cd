// SPDX-License-Identifier: MIT

import Companion
import Documents
import HTTP
import JSON
import Messaging
import Store
import Sync
import UntrustedText

/// `/v1/documents…`: what is noted of nodes and channels, and settings that may be changed from afar. See docs/documents.md.
struct DocumentAPI {
  let dependencies: ControlAPI.Dependencies

  func edit(_ body: RequestBody) async throws(Refusal) -> Answer { try await edit(try body.string("key"), body) }

  func editNode(_ field: DocumentKey.NodeField, _ body: RequestBody) async throws(Refusal) -> Answer {
    let node = try Addressing(dependencies.store).contact(try body.string("node"))
    return try await edit(DocumentKey.node(key: node.contact.key.hex, field).text, body)
  }

  func editRelay(_ body: RequestBody) async throws(Refusal) -> Answer {
    let channel = try Addressing(dependencies.store).channel(try body.string("channel"))
    return try await edit(DocumentKey.relay(digest: channel.secret.digest).text, body)
  }

  /// `value`; without it, or with null, the document is deleted.
  private func edit(_ text: String, _ body: RequestBody) async throws(Refusal) -> Answer {
    guard let key = DocumentKey(text) else { throw .invalid(DocumentKey.allowed) }
    let given = body.any("value")
    if let given, !key.allows(given) { throw .invalid("\"value\" is \(key.wanted)") }
    var value: String?
    if let given {
      var writer = JSONWriter()
      writer.value(given)
      value = writer.string
    }
    let hasRoom = try Refusal.translating { () throws(StoreError) in try dependencies.store.hasRoomForDocument(text) }
    guard hasRoom else {
      throw .full("the limit of \(Store.maxDocuments) documents is reached; deleted documents count")
    }
    let moment = dependencies.synchronizer.now
    var edited: Document?
    try await Refusal.translating { () async throws(StoreError) in
      try await dependencies.store.save { store throws(SQLiteError) in
        edited = try store.editDocument(text, value, at: moment)
      }
    }
    if edited != nil { dependencies.operations.documentsChanged() }
    return .json { json in if let edited { Self.write(edited, to: &json) } }
  }

  private static func write(_ document: Document, to json: inout JSONWriter) {
    json.field("key", document.key)
    json.field("value", json: Array((document.value ?? "null").utf8))
    json.field("updated_at", document.updatedAt)
    json.field("by_hub", document.byHub)
  }

  /// Lists documents, at most 1000; with `after` the next ones.
  func list(_ request: HTTPRequest) throws(Refusal) -> Answer {
    let after = request.query["after"] ?? ""
    var found: [Document] = []
    try Refusal.translating { () throws(StoreError) in
      try dependencies.store.eachDocument(request.query["prefix"] ?? "") { document in
        if document.key > after, document.value != nil { found.append(document) }
        return found.count < 1000
      }
    }
    return .json { json in
      json.objects("documents", found) { Self.write($0, to: &$1) }
      if found.count == 1000 { json.field("next", found.last?.key) }
    }
  }

  /// What the node whose key begins so is called here; `nil` also when several are.
  static func alias(ofKey beginning: String, _ store: Store) -> String? {
    var found: [String] = []
    // Without its alias the node still has its name.
    store.ifReadable {
      try store.eachDocument("node/\(beginning)") { document in
        if document.key.ends(with: "/alias"), let value = document.value,
          let alias = (try? JSONValue(parsing: value))?.string  // what is stored was JSON when it was received
        {
          found.append(alias)
        }
        return found.count < 2
      }
    }
    return found.count == 1 ? found[0] : nil
  }

  /// What is noted of a node: `alias`, `note`, `tags`.
  static func writeNotes(of key: PublicKey, _ store: Store, to json: inout JSONWriter) {
    // A node without its notes is still the node.
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
