--- Keys that do something of ours where it applies, and what they were mapped to before where it does not.
local M = {}

local MARK = 'Foretype: '

--- The name under which the mapping from before goes on.
local function before(mode, lhs)
  return ('<Plug>(foretype-%s-%s)'):format(mode, (lhs:gsub('[<>|()]', '')))
end

local function raw(lhs)
  return vim.api.nvim_replace_termcodes(lhs, true, true, true)
end

--- What a key does that nobody has mapped: with Alt it is Escape and the key, but only where it is typed (`:help i_ALT`).
--- @return string keys
--- @return boolean whether they may be mapped themselves, as typed ones are
local function unmapped(lhs)
  local key = lhs:match('^<[MAma]%-(.+)>$')
  if not key or key:find('^%u%-.') then
    return lhs, false
  end
  return '<Esc>' .. (#key > 1 and '<' .. key .. '>' or key), true
end

--- What a key is mapped to in the current buffer; `maparg()` of 0.7 gives functions as numbers.
local function mapped(mode, lhs)
  for _, mappings in ipairs({ vim.api.nvim_buf_get_keymap(0, mode), vim.api.nvim_get_keymap(mode) }) do
    for _, mapping in ipairs(mappings) do
      if raw(mapping.lhs) == raw(lhs) then
        return mapping
      end
    end
  end
end

local function of_buffer(mapping)
  return mapping ~= nil and mapping.buffer ~= 0
end

local function is_ours(mapping)
  return mapping ~= nil and vim.startswith(mapping.desc or '', MARK)
end

--- Map a key to what another mapping does. Not by `vim.keymap.set()`, which in 0.7 would read special keys in its result twice.
local function copy(mode, lhs, mapping, bufnr)
  local options = {
    expr = mapping.expr == 1, noremap = mapping.noremap == 1, silent = mapping.silent == 1, desc = mapping.desc,
    callback = mapping.callback, replace_keycodes = mapping.replace_keycodes == 1 or nil,
  }
  local does = (mapping.rhs or ''):gsub('<SID>', ('<SNR>%d_'):format(mapping.sid or 0))
  if bufnr then
    vim.api.nvim_buf_set_keymap(bufnr, mode, lhs, does, options)
  else
    vim.api.nvim_set_keymap(mode, lhs, does, options)
  end
end

--- @param mode string
--- @param lhs string
--- @param take fun(): string? keys to press instead; nil where this does not apply
--- @param told string what it is for
--- @param bufnr integer? of this buffer alone
--- @return table? mapping that it stands before
function M.over(mode, lhs, take, told, bufnr)
  local was = mapped(mode, lhs)
  local twice = is_ours(was) and of_buffer(was) == (bufnr ~= nil) -- set up again
  if not twice then
    if was then
      copy(mode, before(mode, lhs .. (bufnr or '')), was)
    else
      local keys, mappable = unmapped(lhs)
      vim.keymap.set(mode, before(mode, lhs .. (bufnr or '')), keys, { remap = mappable })
    end
  end
  vim.keymap.set(mode, lhs, function()
    return take() or before(mode, lhs .. (bufnr or ''))
  end, { expr = true, remap = true, buffer = bufnr, desc = MARK .. told })
  return was
end

--- Keys of one buffer for as long as something is shown in it.
--- @param wanted table[] lists of mode, key, what it does, what it is for
--- @return fun() that makes the keys what they were
function M.hold(bufnr, wanted)
  local held = {}
  for _, one in ipairs(wanted) do
    local mode, lhs, take, told = unpack(one)
    table.insert(held, { mode, lhs, M.over(mode, lhs, take, told, bufnr) })
  end
  return function()
    if not vim.api.nvim_buf_is_valid(bufnr) then
      return
    end
    vim.api.nvim_buf_call(bufnr, function()
      for _, one in ipairs(held) do
        local mode, lhs, was = unpack(one, 1, 3)
        local now = mapped(mode, lhs)
        if is_ours(now) and of_buffer(now) then -- else somebody has taken the key meanwhile
          vim.keymap.del(mode, lhs, { buffer = bufnr })
          if of_buffer(was) then
            copy(mode, lhs, was, bufnr)
          end
        end
      end
    end)
  end
end

return M
