// SPDX-License-Identifier: MIT

import Companion
import Documents
import Escaping
import HTTP
import JSON
import Messaging
import Store
import Sync
import Timing

/// `/v1/documents…`: what is noted of nodes and channels, and settings that may be changed from afar. See docs/documents.md.
final class DocumentAPI {
  static let paths = ["/v1/documents", "/v1/node/alias", "/v1/node/note", "/v1/node/tags", "/v1/channels/relay"]

  private let parts: ControlAPI.Parts

  init(_ parts: ControlAPI.Parts) { self.parts = parts }

  /// False: not one of these.
  func handle(_ request: HTTPRequest, _ responder: HTTPResponder) -> Bool {
    do throws(Refusal) {
      switch (request.method, request.path) {
      case ("GET", "/v1/documents"): try list(request, responder)
      case ("POST", "/v1/documents"):
        let body = try RequestBody(request)
        try edit(try body.string("key"), body, responder)
      case ("POST", "/v1/node/alias"): try editNode(.alias, request, responder)
      case ("POST", "/v1/node/note"): try editNode(.note, request, responder)
      case ("POST", "/v1/node/tags"): try editNode(.tags, request, responder)
      case ("POST", "/v1/channels/relay"):
        let body = try RequestBody(request)
        let channel = try Addressing(parts.store).channel(try body.string("channel"))
        try edit(DocumentKey.relay(digest: channel.secret.digest).text, body, responder)
      default: return false
      }
    } catch {
      Answering.refuse(responder, error)
    }
    return true
  }

  private func editNode(
    _ field: DocumentKey.NodeField, _ request: HTTPRequest, _ responder: HTTPResponder
  ) throws(Refusal) {
    let body = try RequestBody(request)
    let node = try Addressing(parts.store).contact(try body.string("node"))
    try edit(DocumentKey.node(key: node.contact.key.hex, field).text, body, responder)
  }

  /// `value`; without it, or with null, the document is deleted.
  private func edit(_ text: String, _ body: RequestBody, _ responder: HTTPResponder) throws(Refusal) {
    guard let key = DocumentKey(text) else { throw .invalid(DocumentKey.allowed) }
    let given = body.any("value")
    if let given, !key.allows(given) { throw .invalid("\"value\" is \(key.wanted)") }
    var value: String?
    if let given {
      var writer = JSONWriter()
      writer.value(given)
      value = writer.string
    }
    let hasRoom: Bool
    do throws(StoreError) {
      hasRoom = try parts.store.hasRoomForDocument(text)
    } catch {
      throw .store(error)
    }
    guard hasRoom else { throw .full("there are \(Store.maxDocuments) documents already; delete does not free one") }
    let moment = parts.synchronizer.now
    var edited: Document?
    parts.store.write({ store throws(SQLiteError) in
      edited = try store.editDocument(text, value, at: moment)
    }) { [parts] failure in
      if let failure { return Answering.refuse(responder, .store(failure)) }
      Answering.answer(responder) { json in if let edited { Self.write(edited, to: &json) } }
      if let edited { parts.documentChanged(edited) }
    }
  }

  private static func write(_ document: Document, to json: inout JSONWriter) {
    json.field("key", document.key)
    json.field("value", json: Array((document.value ?? "null").utf8))
    json.field("updated_at", document.updatedAt)
    json.field("by_hub", document.byHub)
  }

  /// At most 1000; with `after` the next ones.
  private func list(_ request: HTTPRequest, _ responder: HTTPResponder) throws(Refusal) {
    let after = request.query["after"] ?? ""
    var found: [Document] = []
    do throws(StoreError) {
      try parts.store.eachDocument(request.query["prefix"] ?? "") { document in
        if document.key > after, document.value != nil { found.append(document) }
        return found.count < 1000
      }
    } catch {
      throw .store(error)
    }
    Answering.answer(responder) { json in
      json.arrayField("documents") { json in for document in found { json.object { Self.write(document, to: &$0) } } }
      if found.count == 1000 { json.field("next", found.last?.key) }
    }
  }

  /// What the node whose key begins so is called here; `nil` also when several are.
  static func alias(ofKey beginning: String, _ store: Store) -> String? {
    var found: [String] = []
    // `try?`: without its alias the node still has its name; and what is kept was JSON when it came.
    try? store.eachDocument("node/\(beginning)") { document in
      if document.key.ends(with: "/alias"), let value = document.value,
        let alias = (try? JSONValue(parsing: value))?.string
      {
        found.append(alias)
      }
      return found.count < 2
    }
    return found.count == 1 ? found[0] : nil
  }

  /// What is noted of a node: `alias`, `note`, `tags`.
  static func writeNotes(of key: PublicKey, _ store: Store, to json: inout JSONWriter) {
    // `try?`: a node without its notes is still the node.
    try? store.eachDocument("node/\(key.hex)/") { document in
      if let value = document.value, let field = document.key.split(separator: "/").last {
        json.field(String(field), json: Array(value.utf8))
      }
      return true
    }
  }
}
