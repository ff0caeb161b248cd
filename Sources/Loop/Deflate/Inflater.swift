// SPDX-License-Identifier: MIT

import CZlib

/// Why bytes cannot be decompressed.
public enum InflateFailure: Error, Equatable, Sendable {
  case damaged
  /// The result would exceed the limit.
  case tooLarge
}

/// Decompresses the output of a peer's `Deflater`. Total: every input ends in bytes or in a failure. After a failure,
/// each further call fails, too.
public final class Inflater {
  private let stream: UnsafeMutablePointer<z_stream>
  private let dictionary: [UInt8]
  /// True: a series of messages. False: one piece of data with an end.
  private let isSeries: Bool
  private var failure: InflateFailure?
  /// The end of the single piece was reached.
  fileprivate var isOver = false

  /// A decompressor for messages. `windowBits`: 9 to 15, at least the peer's. It takes 2^windowBits bytes + 7 KiB.
  /// `nil`: no memory.
  public convenience init?(windowBits: Int, dictionary: [UInt8] = []) {
    self.init(bits: -Int32(min(max(windowBits, 9), 15)), isSeries: true, dictionary)
  }

  private init?(bits: Int32, isSeries: Bool, _ dictionary: [UInt8]) {
    stream = .allocate(capacity: 1)
    stream.initialize(to: z_stream())
    self.dictionary = dictionary
    self.isSeries = isSeries
    guard meshpost_inflate_begin(stream, bits) == Z_OK else {
      stream.deallocate()
      return nil
    }
    prime()
  }

  deinit {
    inflateEnd(stream)
    stream.deallocate()
  }

  private func prime() {
    guard !dictionary.isEmpty else { return }
    inflateSetDictionary(stream, dictionary, UInt32(dictionary.count))
  }

  /// Forgets earlier messages; the dictionary remains.
  public func reset() {
    inflateReset(stream)
    prime()
  }

  /// Decompresses one whole message of the link with this `context`, regardless of earlier calls and failures: links
  /// with little traffic share one inflater. The result has at most `limit` bytes.
  public func message(
    _ bytes: some Collection<UInt8>, behind context: LinkContext, limit: Int
  ) throws(InflateFailure) -> [UInt8] {
    inflateReset(stream)
    failure = nil
    context.each { inflateSetDictionary(stream, $0, UInt32($1)) }
    var output: [UInt8] = []
    try append(bytes, to: &output, limit: limit)
    try finish(into: &output, limit: limit)
    guard isBetweenBlocks else { throw .damaged }
    return output
  }

  /// The message ends at the end of a block, so that the next one does not continue it. zlib shows this as 128 in
  /// `data_type`, with no bits left over. Source: `inflate` in zlib.h, RFC 7692 § 7.2.1.
  private var isBetweenBlocks: Bool { stream.pointee.data_type == 128 }

  /// Decompresses a piece of a message and appends it to `output`, which may grow to `limit` bytes.
  public func append(
    _ piece: some Collection<UInt8>, to output: inout [UInt8], limit: Int
  ) throws(InflateFailure) {
    if let failure { throw failure }
    var made = output.count
    Chunk.each(stream, of: Array(piece), into: &output) {
      let room = Int(stream.pointee.avail_out)
      let code = inflate(stream, Z_SYNC_FLUSH)
      made += room - Int(stream.pointee.avail_out)
      return isDone(code, made > limit)
    }
    if let failure { throw failure }
  }

  private func isDone(_ code: Int32, _ isTooMuch: Bool) -> Bool {
    if isTooMuch { failure = .tooLarge }
    switch code {
    case Z_OK, Z_BUF_ERROR: break
    case Z_STREAM_END where isSeries:
      // A peer may end its stream within a message, and begin another. Source: RFC 7692 § 7.2.3.4.
      inflateReset(stream)
    case Z_STREAM_END:
      isOver = true
      if stream.pointee.avail_in > 0 { failure = .damaged }
    default: failure = .damaged
    }
    // zlib wants more input, or has no more output.
    return failure != nil || isOver
      || (stream.pointee.avail_out > 0 && (stream.pointee.avail_in == 0 || code == Z_BUF_ERROR))
  }

  /// Ends a message after its last piece. Source: RFC 7692 § 7.2.2.
  public func finish(into output: inout [UInt8], limit: Int) throws(InflateFailure) {
    try append([0, 0, 0xFF, 0xFF], to: &output, limit: limit)
  }

  /// Decompresses a whole gzip file; the result has at most `limit` bytes.
  public static func gunzip(_ bytes: [UInt8], limit: Int) throws(InflateFailure) -> [UInt8] {
    try Inflater(bits: 16 + 15, isSeries: false, []).one(bytes, limit)
  }

  /// Decompresses the output of `Deflater.whole`; the result has at most `limit` bytes.
  public static func whole(_ bytes: [UInt8], dictionary: [UInt8], limit: Int) throws(InflateFailure) -> [UInt8] {
    try Inflater(bits: -15, isSeries: false, dictionary).one(bytes, limit)
  }
}

extension Inflater? {
  fileprivate func one(_ bytes: [UInt8], _ limit: Int) throws(InflateFailure) -> [UInt8] {
    guard let inflater = self else { throw .tooLarge }
    var output: [UInt8] = []
    try inflater.append(bytes, to: &output, limit: limit)
    guard inflater.isOver else { throw .damaged }
    return output
  }
}
