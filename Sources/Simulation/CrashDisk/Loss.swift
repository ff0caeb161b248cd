// SPDX-License-Identifier: MIT

/// Decides by a seed which unsynced changes an image has.
struct Loss {
  static let sector = 512
  fileprivate static let sectorsOfPage = 8

  fileprivate enum Manner {
    /// Changes reach the disk in order; the last one only in part.
    case inOrder(last: Int)
    /// Each sector, or each page, has any number of its changes.
    case anyNumber(pages: Bool)
    /// Each sector, or each page, has all of its changes or none; `share` of 16 have them.
    case allOrNone(pages: Bool, share: UInt64)
  }

  private let seed: UInt64
  private let manner: Manner
  /// Whether names in the folder change in order.
  private let lastName: Int?
  private var draws: UInt64 = 0

  /// `unsynced`: the numbers of all changes, in order.
  init(_ seed: UInt64, unsynced: [Int]) {
    self.seed = seed
    func any(_ salt: UInt64) -> Int {
      unsynced.isEmpty ? 0 : unsynced[Int(Self.mix(seed ^ salt) % UInt64(unsynced.count))]
    }
    let isByPages = Self.mix(seed ^ 5) % 4 == 0
    switch seed % 3 {
    case 0: manner = .inOrder(last: any(1))
    case 1: manner = .anyNumber(pages: isByPages)
    default: manner = .allOrNone(pages: isByPages, share: [1, 8, 15][Int(Self.mix(seed ^ 2) % 3)])
    }
    if case .inOrder(let last) = manner {
      lastName = last
    } else {
      lastName = Self.mix(seed ^ 3) % 2 == 0 ? any(4) : nil
    }
  }

  /// SplitMix64.
  fileprivate static func mix(_ value: UInt64) -> UInt64 {
    var bits = value &+ 0x9E37_79B9_7F4A_7C15
    bits = (bits ^ bits >> 30) &* 0xBF58_476D_1CE4_E5B9
    bits = (bits ^ bits >> 27) &* 0x94D0_49BB_1331_11EB
    return bits ^ bits >> 31
  }

  private mutating func draw() -> UInt64 {
    draws += 1
    return Self.mix(Self.mix(seed) &+ draws)
  }

  mutating func keepsName(_ order: Int) -> Bool { lastName.map { order <= $0 } ?? (draw() % 2 == 0) }

  /// The part for one file. `changes`: their numbers.
  mutating func ofFile(changes: [Int]) -> OfFile {
    var (whole, isTorn) = (changes.count, false)
    if case .inOrder(let last) = manner { (whole, isTorn) = (changes.count { $0 < last }, changes.contains(last)) }
    let salt = draw()
    let file = OfFile(manner: manner, count: changes.count, whole: whole, isTorn: isTorn, salt: salt)
    if case .inOrder = manner { return file.with(length: file.kept(sector: -1)) }
    return file.with(length: draw() % 4 == 0 ? Int(draw() % UInt64(changes.count + 1)) : changes.count)
  }

  /// The number of changes that a file's sectors and its length have.
  struct OfFile {
    fileprivate let manner: Manner
    fileprivate let count: Int
    /// In order: the changes that are whole, and whether another one is torn.
    fileprivate let whole: Int
    fileprivate let isTorn: Bool
    fileprivate let salt: UInt64
    private(set) var keptLength = 0

    fileprivate func with(length: Int) -> OfFile {
      var file = self
      file.keptLength = length
      return file
    }

    func kept(sector: Int) -> Int {
      func decided(byPages: Bool) -> UInt64 {
        Loss.mix(
          salt ^ UInt64(truncatingIfNeeded: byPages ? sector / Loss.sectorsOfPage : sector) &* 0x2545_F491_4F6C_DD1D)
      }
      switch manner {
      case .inOrder: return isTorn && decided(byPages: false) % 2 == 0 ? whole + 1 : whole
      case .anyNumber(let pages): return Int(decided(byPages: pages) % UInt64(count + 1))
      case .allOrNone(let pages, let share): return decided(byPages: pages) % 16 < share ? count : 0
      }
    }
  }
}
