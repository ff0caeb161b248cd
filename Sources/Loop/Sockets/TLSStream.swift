// SPDX-License-Identifier: MIT

import COpenSSL
import EventLoop
import Glibc

/// Shared state of an upstream's TLS connections: the trusted authorities, and the session that the next connection may
/// resume.
public final class TLSContext {
  fileprivate let handle: OpaquePointer
  fileprivate var kept: TLSSession?
  /// The end of validity of the server's latest certificate, in seconds since 1970.
  public fileprivate(set) var peerExpiry: Int64?

  public struct SetupError: Error, CustomStringConvertible, Sendable {
    /// The file that is wrong: the trusted authorities, or the client's certificate or key.
    public enum Part: Sendable { case authorities, certificate, key }

    public let part: Part
    public let description: String
  }

  /// `authorities`: a PEM file that replaces the system's. `certificate` and `key`: PEM files that identify this client
  /// to the server.
  public init(
    authorities: String? = nil, certificate: String? = nil, key: String? = nil
  ) throws(SetupError) {
    // Otherwise the description of a failure could be that of an earlier one, of other code.
    ERR_clear_error()
    guard let context = SSL_CTX_new(TLS_client_method()) else {
      throw SetupError(part: .authorities, description: "OpenSSL has no TLS")
    }
    handle = context
    _ = meshpost_SSL_CTX_require_tls_1_2(context)
    _ = meshpost_SSL_CTX_release_buffers(context)
    meshpost_SSL_CTX_hand_out_sessions(context) { connection, session in
      guard let stream = connection.flatMap({ SSL_get_ex_data($0, 0) }), let session else { return 0 }
      // OpenSSL calls this only within a call of the stream.
      Unmanaged<TLSStream>.fromOpaque(stream).takeUnretainedValue().keep(session)
      return 1
    }
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nil)
    let loaded =
      authorities.map { SSL_CTX_load_verify_file(context, $0) } ?? SSL_CTX_set_default_verify_paths(context)
    guard loaded == 1 else {
      let place = authorities.map { "\($0) has no certificates in PEM" } ?? "the system's certificates"
      throw SetupError(part: .authorities, description: "\(place): \(TLSStream.lastError())")
    }
    guard let certificate else { return }
    guard SSL_CTX_use_certificate_chain_file(context, certificate) == 1 else {
      throw SetupError(
        part: .certificate, description: "\(certificate) has no certificate in PEM: \(TLSStream.lastError())")
    }
    guard SSL_CTX_use_PrivateKey_file(context, key ?? certificate, SSL_FILETYPE_PEM) == 1,
      SSL_CTX_check_private_key(context) == 1
    else {
      throw SetupError(
        part: .key,
        description: "\(key ?? certificate) has no key in PEM that belongs to the certificate: \(TLSStream.lastError())"
      )
    }
  }

  deinit { SSL_CTX_free(handle) }
}

/// A session from a server: a connection that resumes it transfers no certificates, which saves 2 to 4 KB. It is
/// offered until a newer one comes or it fails, and at most for a day after the last verification of certificates.
final class TLSSession {
  private static let longest = 86_400

  fileprivate let handle: OpaquePointer
  fileprivate let host: String
  /// The time of verification and the end of validity; seconds since 1970.
  fileprivate let verified: Int64
  private let expiry: Int64

  /// Takes ownership of `handle`.
  fileprivate init(_ handle: OpaquePointer, host: String, verified: Int64, expiry: Int64) {
    self.handle = handle
    self.host = host
    self.verified = verified
    self.expiry = expiry
  }

  deinit { SSL_SESSION_free(handle) }

  /// `now`: seconds since 1970.
  fileprivate func isGood(for host: String, now: Int64) -> Bool {
    self.host.utf8.elementsEqual(host.utf8) && (verified...verified + Int64(Self.longest)).contains(now)
      && now < expiry
  }
}

/// TLS over a socket through memory BIOs: OpenSSL never touches the descriptor. The handshake progresses while a task
/// reads.
public final class TLSStream: ByteStream {
  private let socket: SocketStream
  private let context: TLSContext
  private let session: OpaquePointer
  private let incoming: OpaquePointer
  private let outgoing: OpaquePointer
  private let host: String
  /// The time at which the certificates were verified, by this connection or by the one that began the session.
  private var verified: Int64
  private var unsent: [UInt8] = []
  /// Bytes of `unsent` that OpenSSL has taken.
  private var taken = 0
  private var isReady = false

  /// `nil` only when OpenSSL has no memory. The certificate must be for `host`.
  public init?(_ socket: SocketStream, _ context: TLSContext, host: String) {
    guard let session = SSL_new(context.handle), let incoming = BIO_new(BIO_s_mem()),
      let outgoing = BIO_new(BIO_s_mem())
    else { return nil }
    self.socket = socket
    self.context = context
    self.session = session
    self.incoming = incoming
    self.outgoing = outgoing
    self.host = host
    let now = socket.wallSeconds
    let offered = context.kept.flatMap { $0.isGood(for: host, now: now) ? $0 : nil }
    verified = offered?.verified ?? now
    SSL_set_ex_data(session, 0, Unmanaged.passUnretained(self).toOpaque())
    if let offered { SSL_set_session(session, offered.handle) }
    SSL_set_bio(session, incoming, outgoing)
    SSL_set_connect_state(session)
    // `try?`: an invalid name fails earlier, in the resolver.
    let host = (try? HostName.ascii(host)) ?? host
    // If OpenSSL does not accept an address (`127.1`, which the resolver accepts), it is verified as a name:
    // verification is never skipped.
    let address = String(decoding: host.utf8.prefix { $0 != UInt8(ascii: "%") }, as: UTF8.self)
    guard X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session), address) != 1 else { return }
    guard SSL_set1_host(session, host) == 1 else { return nil }
    _ = meshpost_SSL_set_host_name(session, host)
  }

  deinit {
    // Without this, a connection that is cut would invalidate its session.
    SSL_set_shutdown(session, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN)
    SSL_free(session)
  }

  /// Whether the connection has resumed a session, without certificates on the line.
  public var isResumed: Bool { isReady && SSL_session_reused(session) == 1 }

  fileprivate func keep(_ new: OpaquePointer) {
    if SSL_session_reused(session) == 0 { verified = socket.wallSeconds }
    context.kept = TLSSession(new, host: host, verified: verified, expiry: peerExpiry ?? 0)
  }

  public var pendingBytes: Int { unsent.count - taken + socket.pendingBytes }
  public var movedBytes: UInt64 { socket.movedBytes }
  public var outstandingBytes: Int { unsent.count - taken + socket.outstandingBytes }

  /// Data of TLS itself, such as session tickets after an answer, does not count.
  public var isQuiet: Bool {
    while isReady, let bytes = socket.readAvailable() {
      BIO_write(incoming, bytes, Int32(bytes.count))
      guard let data = try? decrypt(), data.isEmpty else { return false }  // `try?`: the stream has ended
    }
    return isReady && socket.isQuiet
  }

  public func close() { socket.close() }

  public func write(_ bytes: [UInt8]) {
    unsent.append(contentsOf: bytes)
    // An error here is reported to the reading task.
    if isReady { writeOut() }
  }

  public func drained() async throws(StreamEnd) {
    repeat { try await socket.drained() } while !unsent.isEmpty
  }

  public func read() async throws(StreamEnd) -> [UInt8] {
    while true {
      if !isReady { try shakeHands() }
      if isReady {
        writeOut()
        let bytes = try decrypt()
        sendOut()
        if !bytes.isEmpty { return bytes }
      }
      let bytes: [UInt8]
      do throws(StreamEnd) {
        bytes = try await socket.read()
      } catch {
        throw error == .closed ? StreamEnd.cut : error
      }
      BIO_write(incoming, bytes, Int32(bytes.count))
    }
  }

  private func shakeHands() throws(StreamEnd) {
    let code = SSL_do_handshake(session)
    isReady = code == 1
    if isReady { context.peerExpiry = peerExpiry }
    let problem = SSL_get_error(session, code)
    sendOut()
    if !isReady, problem != SSL_ERROR_WANT_READ, problem != SSL_ERROR_WANT_WRITE { throw failure() }
  }

  private var peerExpiry: Int64? {
    guard let certificate = SSL_get1_peer_certificate(session) else { return nil }
    defer { X509_free(certificate) }
    var parts = tm()
    guard ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts) == 1 else { return nil }
    return Int64(timegm(&parts))
  }

  private func writeOut() {
    while taken < unsent.count {
      let written = unsent.withUnsafeBytes { bytes in
        SSL_write(session, bytes.baseAddress.map { $0 + taken }, Int32(min(bytes.count - taken, 16384)))
      }
      guard written > 0 else { return }
      taken += Int(written)
      sendOut()
    }
    unsent.removeAll(keepingCapacity: unsent.capacity <= 16384)
    taken = 0
  }

  /// Empty: the next record is incomplete.
  private func decrypt() throws(StreamEnd) -> [UInt8] {
    var count: Int32 = 0
    // `SSL_get_error` takes any error in the thread's queue for one of this connection, also one of other code: OpenSSL
    // 3.6 leaves one there when the signature of an advert is wrong.
    ERR_clear_error()
    let bytes = [UInt8](unsafeUninitializedCapacity: Descriptor.chunk) { buffer, initialized in
      count = SSL_read(session, buffer.baseAddress, Int32(buffer.count))
      initialized = max(0, Int(count))
    }
    if count > 0 { return bytes }
    switch SSL_get_error(session, count) {
    case SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE: return []
    case SSL_ERROR_ZERO_RETURN:
      close()
      throw .closed
    default: throw failure()
    }
  }

  private func sendOut() {
    let waiting = meshpost_BIO_pending(outgoing)
    guard waiting > 0 else { return }
    var bytes = [UInt8](repeating: 0, count: Int(waiting))
    let count = BIO_read(outgoing, &bytes, Int32(bytes.count))
    if count > 0 { socket.write(Array(bytes.prefix(Int(count)))) }
  }

  /// The caller closes the stream.
  private func failure() -> StreamEnd {
    let result = SSL_get_verify_result(session)
    let words =
      result == Int(X509_V_OK)
      ? Self.lastError() : "the certificate: \(String(cString: X509_verify_cert_error_string(result)))"
    close()
    context.kept = nil
    return .failed("TLS failed: \(words)")
  }

  static func lastError() -> String {
    let code = ERR_get_error()
    guard code != 0 else { return "the peer closed the connection abruptly" }
    ERR_clear_error()
    var text = [CChar](repeating: 0, count: 256)
    ERR_error_string_n(code, &text, text.count)
    return String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
