--- The end of typing. Ctrl+C leaves insert mode too, without `InsertLeave`, and interrupts what runs on other events: the key itself
--- is watched, or, in versions that do not tell of it, the mode; and what is to be done is done afterwards.
local M = {}

local INTERRUPT = '\3'

function M.typing()
  return vim.fn.mode():find('^[iR]') ~= nil
end

--- @param group integer of autocommands
--- @param name string of who listens
--- @param run fun(bufnr: integer) called when insert mode was left
function M.on(group, name, run)
  vim.api.nvim_create_autocmd('InsertLeave', {
    group = group,
    callback = function(event)
      run(event.buf)
    end,
  })
  local soon = function(bufnr)
    vim.schedule(function()
      if vim.api.nvim_buf_is_valid(bufnr) and not M.typing() then
        run(bufnr)
      end
    end)
  end
  vim.api.nvim_create_autocmd('ModeChanged', {
    group = group,
    pattern = '[iR]*:[^iR]*',
    callback = function(event)
      soon(event.buf)
    end,
  })
  vim.on_key(function(key)
    if key == INTERRUPT then
      soon(vim.api.nvim_get_current_buf())
    end
  end, vim.api.nvim_create_namespace('foretype_leaving_' .. name))
end

return M
