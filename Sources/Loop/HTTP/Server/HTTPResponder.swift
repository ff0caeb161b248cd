// SPDX-License-Identifier: MIT

import Deflate
import EventLoop
import Sockets

/// Answers one request, at once or in pieces.
public final class HTTPResponder {
  private let stream: any ByteStream
  private let isHead: Bool
  private weak var server: HTTPServer?
  private weak var connection: ServerConnection?
  /// Resumed when the answer has ended, when all output was sent, and when the peer has disconnected.
  private let changed: Waiter
  public private(set) var isOver = false
  /// The answer was aborted.
  private(set) var isAborted = false
  private(set) var isStreaming = false
  /// Bytes of the announced length that are not written yet.
  private var left: Int?

  /// The client's address; `nil`: the client is on this machine, at the Unix socket.
  public let peer: IPAddress?
  /// Headers that every answer gets.
  public var headers: HTTPHeaders = [:]

  /// The client accepts gzip: whole answers are compressed if that makes them shorter, and answers of unknown length
  /// always. Compressed output may be held back until the end, so do not set this for streams.
  public var compresses = false
  /// Compresses an answer of unknown length.
  private var packer: GzipWriter?
  /// Shorter answers are not compressed.
  private static let compressedFrom = 1024

  /// Whether the head was sent.
  public var isBegun: Bool { isOver || isStreaming || left != nil }

  init(
    _ stream: any ByteStream, isHead: Bool, peer: IPAddress?, changed: Waiter, of server: HTTPServer?,
    for connection: ServerConnection? = nil
  ) {
    self.connection = connection
    self.peer = peer
    self.stream = stream
    self.isHead = isHead
    self.changed = changed
    self.server = server
  }

  /// The client has shown that it is `holder`, so its connection is not closed for a stranger's. False: this holder has
  /// too many connections.
  public func showed(_ holder: String) -> Bool { connection.flatMap { server?.showed($0, as: holder) } ?? true }

  /// The client is a proxy, and its own client has this address.
  public func asks(for address: String) { if let connection { server?.asks(connection, for: address) } }

  /// Bytes that the client has not taken yet.
  public var pendingBytes: Int { stream.pendingBytes }

  /// Returns when all output was sent. Throws when the task is cancelled, as it is when the peer disconnects.
  public func drained() async throws(CancellationError) {
    while stream.pendingBytes > 0 { try await changed.wait() }
  }

  public func respond(_ response: HTTPResponse) {
    guard !isOver, !isStreaming, left == nil else { return }
    var response = response
    response.headers = complete(response.headers)
    if compresses, response.body.count >= Self.compressedFrom, response.headers["Content-Encoding"] == nil,
      let packed = Deflater.gzip(response.body), packed.count < response.body.count
    {
      response.body = packed
      response.headers.add("Content-Encoding", "gzip")
      response.headers.add("Vary", "Accept-Encoding")
    }
    stream.write(response.encode(withoutBody: isHead))
    finish()
  }

  /// The answer's own headers, and those that every answer gets.
  private func complete(_ own: HTTPHeaders) -> HTTPHeaders {
    var all = own
    for field in headers.fields where own[field.name] == nil { all.add(field.name, field.value) }
    return all
  }

  /// Begins an answer of unknown length (chunked). False: it is over already, because it answers HEAD, or because too many
  /// such answers are open and this one was refused with 503.
  public func begin(headers: HTTPHeaders) -> Bool {
    guard !isOver, !isStreaming else { return false }
    guard server?.mayStream == true else {
      let words = #"{"error":"too many streams are open; close one of them","code":"full"}"#
      respond(HTTPResponse(status: 503, headers: ["Content-Type": "application/json"], body: Array(words.utf8)))
      return false
    }
    isStreaming = !isHead
    var headers = complete(headers)
    if compresses, headers["Content-Encoding"] == nil {
      packer = GzipWriter()
      if packer != nil {
        headers.add("Content-Encoding", "gzip")
        headers.add("Vary", "Accept-Encoding")
      }
    }
    writeHead("Transfer-Encoding: chunked", headers)
    if isHead { finish() }
    return !isHead
  }

  /// Begins an answer of a known length, written in pieces.
  public func begin(headers: HTTPHeaders, length: Int) {
    guard !isOver, !isStreaming, left == nil else { return }
    left = isHead ? 0 : length
    writeHead("Content-Length: \(length)", complete(headers))
  }

  private func writeHead(_ framing: String, _ headers: HTTPHeaders) {
    var bytes = Array("HTTP/1.1 200 \(HTTPResponse.reason(200))\r\n\(framing)\r\n".utf8)
    headers.write(to: &bytes)
    bytes.append(contentsOf: "\r\n".utf8)
    stream.write(bytes)
  }

  public func write(_ piece: [UInt8]) {
    if let left, !isOver {
      // Excess bytes would be parsed as the next answer.
      self.left = left - min(left, piece.count)
      return stream.write(Array(piece.prefix(left)))
    }
    guard isStreaming, !isOver, !piece.isEmpty else { return }
    writeChunk(packer?.add(piece) ?? piece)
  }

  private func writeChunk(_ piece: [UInt8]) {
    // An empty chunk would end the answer.
    guard !piece.isEmpty else { return }
    stream.write(Array("\(String(piece.count, radix: 16))\r\n".utf8) + piece + Array("\r\n".utf8))
  }

  public func end() {
    if let left, !isOver { return left == 0 ? finish() : abort() }
    guard isStreaming, !isOver else { return }
    if let packer { writeChunk(packer.end()) }
    stream.write(Array("0\r\n\r\n".utf8))
    finish()
  }

  private func finish() {
    isOver = true
    packer = nil
    changed.resume()
  }

  /// Aborts the answer: the peer sees it truncated.
  public func abort() {
    guard !isOver else { return }
    isAborted = true
    finish()
  }
}
