// SPDX-License-Identifier: MIT

import CrashDisk

/// Takes a program's data on a `CrashDisk` through steps, and judges images at every sync and after every step.
///
/// An image must have the state of the last step that has returned, or one that became complete since; nothing else was
/// promised, and no part of a transaction may remain.
public final class CrashTrial {
  /// An image as the program finds it.
  public struct Verdict: Sendable {
    /// Equal for equal states.
    public var state: Int
    /// What is wrong with it, in words.
    public var faults: [String]

    public init(state: Int, faults: [String] = []) { (self.state, self.faults) = (state, faults) }
  }

  public let disk: CrashDisk
  /// Everything that was wrong, with the sync and the seed.
  public private(set) var faults: [String] = []
  public private(set) var (syncs, images) = (0, 0)

  private let target: String
  private let seed: UInt64
  private let seeds: UInt64
  private let judge: (_ isWhole: Bool) throws -> Verdict
  private var step = ""
  /// Whether the states of this step are not compared.
  private var isFree = false
  private var promised: Int?
  /// The states that were complete at syncs of this step.
  private var complete: [Int] = []

  /// `target`: the folder for images. `seeds`: images at each sync. `judge` opens the image there as the program would;
  /// `isWhole`: it is the same as after a kill, without a power cut.
  public init(
    on disk: CrashDisk, imagesIn target: String, seed: UInt64, seeds: UInt64 = 3,
    judge: @escaping (_ isWhole: Bool) throws -> Verdict
  ) {
    (self.disk, self.target, self.seed, self.seeds, self.judge) = (disk, target, seed, seeds, judge)
    disk.onSync = { [weak self] in self?.look() }
  }

  /// Does something without looking at images meanwhile.
  public func prepare(_ work: () throws -> Void) rethrows {
    let look = disk.onSync
    disk.onSync = nil
    defer { disk.onSync = look }
    try work()
    promised = state(of: .keepingAll)
  }

  /// Does something that is on disk when `work` returns.
  public func step(_ name: String, isFree: Bool = false, _ work: () throws -> Void) rethrows {
    begin(name, isFree: isFree)
    try work()
    end()
  }

  /// As `step`, for work that waits.
  public func begin(_ name: String, isFree: Bool = false) { (step, self.isFree, complete) = (name, isFree, []) }

  public func end() {
    (promised, complete, isFree) = (state(of: .keepingAll), [], false)
    lookAtCuts()
  }

  private func look() {
    syncs += 1
    if let now = state(of: .keepingAll) { complete.append(now) }
    lookAtCuts()
  }

  private func lookAtCuts() {
    for number in 0...seeds {
      let cut = number == seeds ? CrashDisk.Cut.losingAll : .seed(seed &+ UInt64(syncs) &* 100 &+ number)
      guard let state = state(of: cut), let promised, !isFree, state != promised, !complete.contains(state) else {
        continue
      }
      faults.append("\(step): sync \(syncs), \(cut): neither the promised state nor a later one")
    }
  }

  private func state(of cut: CrashDisk.Cut) -> Int? {
    var isWhole = false
    if case .keepingAll = cut { isWhole = true } else { images += 1 }
    disk.image(into: target, cut)
    do {
      let verdict = try judge(isWhole)
      faults += verdict.faults.map { "\(step): sync \(syncs), \(cut): \($0)" }
      return verdict.state
    } catch {
      faults.append("\(step): sync \(syncs), \(cut): \(error)")
      return nil
    }
  }
}
