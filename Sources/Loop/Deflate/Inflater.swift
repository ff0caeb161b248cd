// SPDX-License-Identifier: MIT

import CZlib

/// Why bytes cannot be decompressed.
public enum InflateFailure: Error, Equatable, Sendable {
  case damaged
  /// More would come out than is allowed.
  case tooLarge
}

/// Decompresses what a `Deflater` of a peer has made. Total: whatever comes in, it ends in bytes or in a failure. After a failure
/// it gives nothing but failures.
public final class Inflater {
  private let stream: UnsafeMutablePointer<z_stream>
  private let dictionary: [UInt8]
  /// Messages follow one another; else it is one piece of data, with an end.
  private let isSeries: Bool
  private var failure: InflateFailure?
  /// The one piece is over.
  fileprivate var isOver = false

  /// For messages. `windowBits`: 9 to 15, at least the peer's. It takes 2^windowBits + 7 KiB. `nil`: no memory.
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

  /// Forgets the context.
  public func reset() {
    inflateReset(stream)
    prime()
  }

  /// One whole message of a link that has said `context`, whatever this inflater did before, failures too: links that say little share one.
  /// At most `limit` bytes.
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

  /// Nothing is begun that the next message would have to go on with: so it must be, and so each message ends. zlib tells it by 128, and
  /// by no bits that are left. Source: `inflate` in zlib.h, RFC 7692 § 7.2.1.
  private var isBetweenBlocks: Bool { stream.pointee.data_type == 128 }

  /// What `piece` of a message gives, behind `output`, which may become `limit` bytes long.
  public func append(
    _ piece: some Collection<UInt8>, to output: inout [UInt8], limit: Int
  ) throws(InflateFailure) {
    let bytes = Array(piece)
    if let failure { throw failure }
    bytes.withUnsafeBufferPointer { input in
      stream.pointee.next_in = UnsafeMutablePointer(mutating: input.baseAddress)
      stream.pointee.avail_in = UInt32(input.count)
      var made = output.count
      Chunk.each(stream, into: &output) {
        let room = Int(stream.pointee.avail_out)
        let code = inflate(stream, Z_SYNC_FLUSH)
        made += room - Int(stream.pointee.avail_out)
        return isDone(code, made > limit)
      }
    }
    stream.pointee.next_in = nil
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
    // It wants more, or has no more to give.
    return failure != nil || isOver
      || (stream.pointee.avail_out > 0 && (stream.pointee.avail_in == 0 || code == Z_BUF_ERROR))
  }

  /// The end of a message whose pieces have all come. Source: RFC 7692 § 7.2.2.
  public func finish(into output: inout [UInt8], limit: Int) throws(InflateFailure) {
    try append([0, 0, 0xFF, 0xFF], to: &output, limit: limit)
  }

  /// All of a gzip file, which is no larger than `limit`.
  public static func gunzip(_ bytes: [UInt8], limit: Int) throws(InflateFailure) -> [UInt8] {
    try Inflater(bits: 16 + 15, isSeries: false, []).one(bytes, limit)
  }

  /// All of what `Deflater.whole` has made, which is no larger than `limit`.
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
